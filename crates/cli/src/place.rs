//! A file as people name it: `SESSION:PATH` in a room, anything else on this machine.

use crate::remote::Failure;
use crate::which;
use workroom_client::Client;
use workroom_types::FilePath;

/// A path in a session's room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Remote {
    pub(crate) session: String,
    pub(crate) path: String,
}

impl Remote {
    /// `SESSION:PATH`. A slash before the colon makes it a path of this machine, as with scp.
    pub(crate) fn find(text: &str) -> Option<Remote> {
        let (session, path) = text.split_once(':')?;
        let is_remote = !session.is_empty() && !session.contains('/');
        is_remote.then(|| Remote { session: session.to_owned(), path: path.to_owned() })
    }

    /// `SESSION:PATH`, for an option.
    pub(crate) fn parse(text: &str) -> Result<Remote, String> {
        Remote::find(text)
            .ok_or_else(|| format!("\"{text}\" names no file of a session; write it like build:src/main.rs"))
    }

    /// `SESSION` or `SESSION:PATH`, for an option.
    pub(crate) fn parse_either(text: &str) -> Result<Remote, String> {
        match Remote::find(text) {
            Some(remote) => Ok(remote),
            None if text.is_empty() || text.contains('/') => Err(format!("\"{text}\" names no session")),
            None => Ok(Remote { session: text.to_owned(), path: String::new() }),
        }
    }

    /// The session's id.
    pub(crate) async fn id(&self, client: &Client) -> Result<String, Failure> {
        which::session(client, &self.session).await
    }

    pub(crate) fn at(&self, root: bool) -> FilePath {
        FilePath { path: self.path.clone(), root }
    }

    /// The last part of the path.
    pub(crate) fn name(&self) -> &str {
        self.path.trim_end_matches('/').rsplit('/').next().unwrap_or_default()
    }
}

/// A path below a directory.
pub(crate) fn below(directory: &str, name: &str) -> String {
    match directory.trim_end_matches('/') {
        "" if directory.is_empty() => name.to_owned(),
        directory => format!("{directory}/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colon_before_any_slash_is_a_session() {
        let remote = Remote::find("build:src/a:b").expect("of a session");
        assert_eq!(
            (remote.session.as_str(), remote.path.as_str(), remote.name()),
            ("build", "src/a:b", "a:b")
        );
        for local in ["a", "./a:b", "/x:y", ":x", "-"] {
            assert_eq!(Remote::find(local), None, "{local}");
        }
        assert_eq!(Remote::parse_either("build").map(|remote| remote.path), Ok(String::new()));
        assert!(Remote::parse_either("").is_err() && Remote::parse("build").is_err());
        assert_eq!(
            (below("", "a"), below("x/", "a"), below("/", "a")),
            ("a".into(), "x/a".into(), "/a".into())
        );
    }
}
