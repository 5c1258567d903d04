//! Finding a server without being told: `WORKROOM_URL`, `WORKROOM_TOKEN`, `WORKROOM_STATE`, the default state directory.

use crate::{ClientError, Endpoint};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use workroom_types::Problem;

/// The unix socket in a state directory.
const SOCKET: &str = "workroom.sock";
/// The admin token in a state directory.
const TOKEN: &str = "token";
/// No token is longer; what is, is not a token file.
const LONGEST_TOKEN: usize = 4096;

/// Where a server should be, and what to show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Found {
    pub endpoint: Endpoint,
    /// Absent on the unix socket unless one is named: there the kernel says who calls.
    pub token: Option<String>,
}

/// Looks in the environment, then in the state directory. Says where a server would be, not that it is there.
pub fn discover() -> Result<Found, ClientError> {
    Surroundings::real().discover()
}

/// `WORKROOM_STATE`, else the default one.
pub fn state_dir() -> Result<PathBuf, ClientError> {
    Surroundings::real().state_dir()
}

/// Root's `/var/lib/workroom`; another user's `$XDG_STATE_HOME/workroom`, else `~/.local/state/workroom`.
pub fn default_state_dir() -> Result<PathBuf, ClientError> {
    Surroundings::real().default_state_dir()
}

/// What discovery looks at, so that it can be looked at with other values.
struct Surroundings<'a> {
    variable: &'a dyn Fn(&str) -> Option<OsString>,
    root: bool,
    read: &'a dyn Fn(&Path) -> Option<String>,
}

impl Surroundings<'static> {
    fn real() -> Surroundings<'static> {
        Surroundings {
            variable: &|name| std::env::var_os(name),
            root: rustix::process::geteuid().is_root(),
            read: &read_small,
        }
    }
}

impl Surroundings<'_> {
    fn discover(&self) -> Result<Found, ClientError> {
        let named_token = self.text("WORKROOM_TOKEN")?;
        let Some(url) = self.text("WORKROOM_URL")? else {
            let endpoint = Endpoint::Unix(self.state_dir()?.join(SOCKET));
            return Ok(Found { endpoint, token: named_token });
        };
        let endpoint = Endpoint::parse(&url)?;
        // The state directory's token opens this machine's server: it is shown to no other machine.
        let token = named_token.or_else(|| {
            let own = matches!(endpoint, Endpoint::Tcp { .. }) && endpoint.is_local();
            let file = own.then(|| self.state_dir().ok()).flatten()?.join(TOKEN);
            (self.read)(&file).map(|text| text.trim().to_owned()).filter(|token| !token.is_empty())
        });
        Ok(Found { endpoint, token })
    }

    fn state_dir(&self) -> Result<PathBuf, ClientError> {
        match self.set("WORKROOM_STATE") {
            // A socket's path is the same wherever we are.
            Some(dir) => std::path::absolute(&dir).map_err(|error| {
                let detail = format!("WORKROOM_STATE \"{}\" is no directory: {error}", dir.display());
                Problem::invalid(detail, "name the directory that the server keeps its state in").into()
            }),
            None => self.default_state_dir(),
        }
    }

    fn default_state_dir(&self) -> Result<PathBuf, ClientError> {
        if self.root {
            return Ok(PathBuf::from("/var/lib/workroom"));
        }
        let absolute = |dir: &PathBuf| dir.is_absolute();
        let home = || self.set("HOME").map(PathBuf::from).map(|home| home.join(".local/state"));
        // The XDG specification says to ignore what is not absolute.
        let base = self.set("XDG_STATE_HOME").map(PathBuf::from).filter(absolute).or_else(home);
        base.filter(absolute).map(|dir| dir.join("workroom")).ok_or_else(|| {
            Problem::invalid(
                "there is no HOME to look for the state directory in",
                "set WORKROOM_URL or WORKROOM_STATE",
            )
            .into()
        })
    }

    /// A variable that is set to nothing is not set.
    fn set(&self, name: &str) -> Option<OsString> {
        (self.variable)(name).filter(|value| !value.is_empty())
    }

    fn text(&self, name: &str) -> Result<Option<String>, ClientError> {
        let Some(value) = self.set(name) else { return Ok(None) };
        match value.into_string() {
            Ok(text) => Ok(Some(text.trim().to_owned())),
            Err(_) => Err(Problem::invalid(format!("{name} is not text"), "set it anew, or unset it").into()),
        }
    }
}

fn read_small(path: &Path) -> Option<String> {
    use std::io::Read;
    let file = std::fs::File::open(path).ok()?;
    let mut text = String::new();
    file.take(LONGEST_TOKEN as u64 + 1).read_to_string(&mut text).ok()?;
    (text.len() <= LONGEST_TOKEN).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn found(root: bool, variables: &[(&str, &str)]) -> Result<(String, Option<String>), String> {
        let variables: HashMap<&str, &str> = variables.iter().copied().collect();
        let read = |path: &Path| match path.to_str() {
            Some("/var/lib/workroom/token") => Some("root-token\n".to_owned()),
            Some("/state/token") => Some("state-token\n".to_owned()),
            Some("/home/me/.local/state/workroom/token") => Some("home-token\n".to_owned()),
            _ => None,
        };
        let surroundings =
            Surroundings { variable: &|name| variables.get(name).map(OsString::from), root, read: &read };
        match surroundings.discover() {
            Ok(found) => Ok((found.endpoint.to_string(), found.token)),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn where_a_server_is_looked_for() {
        let home = ("HOME", "/home/me");
        let tcp = ("WORKROOM_URL", "http://127.0.0.1:7300");
        let far = ("WORKROOM_URL", "http://box:7300");
        let token = ("WORKROOM_TOKEN", "given");
        type Row<'a> = (bool, &'a [(&'a str, &'a str)], &'a str, Option<&'a str>);
        let table: [Row<'_>; 14] = [
            (true, &[], "unix:/var/lib/workroom/workroom.sock", None),
            (true, &[("XDG_STATE_HOME", "/x")], "unix:/var/lib/workroom/workroom.sock", None),
            (false, &[home], "unix:/home/me/.local/state/workroom/workroom.sock", None),
            (false, &[home, ("XDG_STATE_HOME", "/x")], "unix:/x/workroom/workroom.sock", None),
            (
                false,
                &[home, ("XDG_STATE_HOME", "x")],
                "unix:/home/me/.local/state/workroom/workroom.sock",
                None,
            ),
            (false, &[home, ("WORKROOM_STATE", "/state")], "unix:/state/workroom.sock", None),
            (false, &[home, token], "unix:/home/me/.local/state/workroom/workroom.sock", Some("given")),
            (false, &[home, tcp, token], "http://127.0.0.1:7300", Some("given")),
            (false, &[home, tcp], "http://127.0.0.1:7300", Some("home-token")),
            (true, &[tcp], "http://127.0.0.1:7300", Some("root-token")),
            (true, &[tcp, ("WORKROOM_STATE", "/state")], "http://127.0.0.1:7300", Some("state-token")),
            (false, &[tcp, ("WORKROOM_URL", "unix:/s"), ("WORKROOM_STATE", "/state")], "unix:/s", None),
            (false, &[far, ("WORKROOM_STATE", "/state")], "http://box:7300", None),
            (
                false,
                &[("WORKROOM_URL", ""), home, ("WORKROOM_STATE", "")],
                "unix:/home/me/.local/state/workroom/workroom.sock",
                None,
            ),
        ];
        for (root, variables, endpoint, token) in table {
            let expected = (endpoint.to_owned(), token.map(str::to_owned));
            assert_eq!(found(root, variables), Ok(expected), "{root} {variables:?}");
        }
    }

    #[test]
    fn what_cannot_be_found_says_so() {
        assert!(found(false, &[]).unwrap_err().contains("WORKROOM_STATE"));
        assert!(found(false, &[("WORKROOM_URL", "https://box")]).unwrap_err().contains("TLS"));
    }
}
