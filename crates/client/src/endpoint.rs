//! Where a server listens: `http://HOST:PORT` or `unix:PATH`.

use crate::ClientError;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use workroom_types::Problem;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// `host` is a name or an address, an IPv6 one without its brackets.
    Tcp {
        host: String,
        port: u16,
    },
    Unix(PathBuf),
}

impl Endpoint {
    /// Reads `http://127.0.0.1:7300`, `http://[::1]:7300`, `unix:/run/workroom.sock`.
    pub fn parse(url: &str) -> Result<Endpoint, ClientError> {
        let refuse = |why: &str| {
            let hint = "write it like http://127.0.0.1:7300 or unix:/path/to/workroom.sock";
            Err(Problem::invalid(format!("the server's address \"{url}\" {why}"), hint).into())
        };
        if let Some(path) = url.strip_prefix("unix:") {
            // `unix:///path` is how URLs write it.
            let path = path.strip_prefix("//").unwrap_or(path);
            if !path.starts_with('/') {
                return refuse("is not an absolute path");
            }
            return Ok(Endpoint::Unix(PathBuf::from(path)));
        }
        let lower = url.to_ascii_lowercase();
        if lower.starts_with("https://") {
            return refuse("wants TLS, which this client does not speak");
        }
        if !lower.starts_with("http://") {
            return refuse("is neither http:// nor unix:");
        }
        let rest = &url["http://".len()..];
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if authority.contains(['/', '?', '#']) {
            return refuse("has a path; the server's own is added to HOST:PORT");
        }
        if authority.contains('@') {
            return refuse("holds a user name; the token goes into WORKROOM_TOKEN");
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(bracketed) => match bracketed.split_once(']') {
                Some((host, port)) if host.parse::<std::net::Ipv6Addr>().is_ok() => (host, port),
                _ => return refuse("holds no IPv6 address between [ and ]"),
            },
            None => match authority.find(':') {
                Some(colon) => authority.split_at(colon),
                None => (authority, ""),
            },
        };
        let port = match port.strip_prefix(':') {
            Some(port) => port.parse().ok().filter(|port| *port != 0),
            None if port.is_empty() => Some(80),
            None => None,
        };
        let known = |c: char| c.is_ascii_alphanumeric() || ".-_:".contains(c);
        match port {
            None => refuse("has no port between 1 and 65535"),
            Some(_) if host.is_empty() || !host.chars().all(known) => refuse("names no host"),
            Some(port) => Ok(Endpoint::Tcp { host: host.to_owned(), port }),
        }
    }

    /// What goes into `Host`.
    pub(crate) fn authority(&self) -> String {
        match self {
            Endpoint::Tcp { host, port } if host.contains(':') => format!("[{host}]:{port}"),
            Endpoint::Tcp { host, port } => format!("{host}:{port}"),
            Endpoint::Unix(_) => "localhost".into(),
        }
    }

    /// Whether it can only be this machine.
    pub fn is_local(&self) -> bool {
        match self {
            Endpoint::Unix(_) => true,
            Endpoint::Tcp { host, .. } => {
                host.eq_ignore_ascii_case("localhost")
                    || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
            }
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Tcp { .. } => write!(out, "http://{}", self.authority()),
            Endpoint::Unix(path) => write!(out, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_as_people_write_them() {
        let tcp = |host: &str, port| Endpoint::Tcp { host: host.into(), port };
        for (url, endpoint) in [
            ("http://127.0.0.1:7300", tcp("127.0.0.1", 7300)),
            ("HTTP://box.example:80/", tcp("box.example", 80)),
            ("http://box", tcp("box", 80)),
            ("http://[::1]:7300", tcp("::1", 7300)),
            ("unix:/run/w.sock", Endpoint::Unix("/run/w.sock".into())),
            ("unix:///run/w.sock", Endpoint::Unix("/run/w.sock".into())),
        ] {
            assert_eq!(Endpoint::parse(url).ok(), Some(endpoint), "{url}");
        }
        for url in [
            "",
            "127.0.0.1:7300",
            "https://box:7300",
            "http://",
            "http://:7300",
            "http://box:0",
            "http://box:99999",
            "http://box:7300/v1",
            "http://me:secret@box:7300",
            "http://[box]:7300",
            "http://[::1",
            "http://a b:7300",
            "unix:w.sock",
        ] {
            assert!(Endpoint::parse(url).is_err(), "{url}");
        }
        let https = Endpoint::parse("https://box:7300").unwrap_err().to_string();
        assert!(https.contains("TLS") && https.contains("http://127.0.0.1:7300"), "{https}");
    }

    #[test]
    fn an_address_is_written_as_it_is_read() {
        for url in ["http://127.0.0.1:7300", "http://[::1]:7300", "unix:/run/w.sock"] {
            assert_eq!(Endpoint::parse(url).unwrap().to_string(), url);
        }
    }

    #[test]
    fn only_loopback_is_local() {
        for (url, local) in [
            ("http://localhost:1", true),
            ("http://127.9.9.9:1", true),
            ("http://[::1]:1", true),
            ("unix:/x", true),
            ("http://10.0.0.1:1", false),
            ("http://localhost.example:1", false),
        ] {
            assert_eq!(Endpoint::parse(url).unwrap().is_local(), local, "{url}");
        }
    }
}
