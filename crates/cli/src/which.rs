//! Which session is meant: its id, its name, or the beginning of its id or of the id's last part.

use crate::remote::Failure;
use workroom_client::Client;
use workroom_types::{ListSessions, Problem, ProblemCode};

/// How many are named when several match.
const MOST_NAMED: usize = 5;

/// The id of the one session that `text` can mean.
pub(crate) async fn session(client: &Client, text: &str) -> Result<String, Failure> {
    // A whole id needs no looking up, and may be that of a session which is gone.
    if is_id(text) {
        return Ok(text.to_owned());
    }
    let mut found = Found::default();
    let mut filter = ListSessions { limit: Some(1000), ..ListSessions::default() };
    loop {
        let page = client.list(&filter).await?;
        page.sessions.into_iter().for_each(|known| found.look(text, known.id, &known.name));
        filter.cursor = page.next;
        if filter.cursor.is_none() {
            return the_only(text, found.meant());
        }
    }
}

/// `YYYYMMDD-hhmmss-` and 8 hex digits.
fn is_id(text: &str) -> bool {
    let mut parts = text.split('-');
    let digits = |part: Option<&str>, count| {
        part.is_some_and(|part| part.len() == count && part.bytes().all(|b| b.is_ascii_digit()))
    };
    let hex = |part: &str| part.len() == 8 && part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    digits(parts.next(), 8)
        && digits(parts.next(), 6)
        && parts.next().is_some_and(hex)
        && parts.next().is_none()
}

/// Sessions that a text can mean.
#[derive(Default)]
struct Found {
    by_name: Vec<String>,
    by_beginning: Vec<String>,
}

impl Found {
    fn look(&mut self, text: &str, id: String, name: &str) {
        if text.is_empty() {
            return;
        }
        let last = id.rsplit('-').next().unwrap_or_default();
        if name == text {
            self.by_name.push(id);
        } else if id.starts_with(text) || last.starts_with(text) {
            self.by_beginning.push(id);
        }
    }

    /// A name that somebody gave is not taken away by ids that happen to begin so.
    fn meant(self) -> Vec<String> {
        if self.by_name.is_empty() { self.by_beginning } else { self.by_name }
    }
}

fn the_only(text: &str, mut matching: Vec<String>) -> Result<String, Failure> {
    match matching.len() {
        1 => Ok(matching.remove(0)),
        0 => Err(Problem::new(
            ProblemCode::NotFound,
            format!("there is no session \"{text}\""),
            "`workroom ls` lists those that there are",
        )
        .into()),
        several => {
            let more = if several > MOST_NAMED { ", …" } else { "" };
            matching.truncate(MOST_NAMED);
            Err(Failure::problem(
                format!("\"{text}\" can mean {several} sessions: {}{more}", matching.join(", ")),
                "write more of its id",
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_id_is_known_by_its_form() {
        assert!(is_id("20260131-120000-0a1b2c3d"));
        for text in ["", "20260131", "20260131-120000-0a1b2c3", "20260131-120000-0A1B2C3D", "x-y-z"] {
            assert!(!is_id(text), "{text}");
        }
        assert!(!is_id("20260131-120000-0a1b2c3d-1"));
    }

    #[test]
    fn what_a_few_letters_can_mean() {
        let id = "20260131-120000-0a1b2c3d";
        let meant = |text: &str, sessions: &[(&str, &str)]| {
            let mut found = Found::default();
            sessions.iter().for_each(|(id, name)| found.look(text, (*id).to_owned(), name));
            found.meant()
        };
        for text in ["2026", id, "0a1b", "build"] {
            assert_eq!(meant(text, &[(id, "build")]), [id], "{text}");
        }
        for text in ["", "120000", "a1b", "buil"] {
            assert!(meant(text, &[(id, "build")]).is_empty(), "{text}");
        }
        let named = ("20260131-120000-ffffffff", "0a1b");
        assert_eq!(meant("0a1b", &[(id, "build"), named]), [named.0], "a name goes before a beginning");
        assert_eq!(meant("0a1b", &[(id, "0a1b"), named]), [id, named.0], "two of a name are two");
        assert_eq!(meant("2026", &[(id, "build"), named]), [id, named.0]);
    }

    #[test]
    fn only_one_may_match() {
        let ids = |count: usize| (0..count).map(|n| format!("id-{n}")).collect::<Vec<_>>();
        assert_eq!(the_only("i", ids(1)).unwrap(), "id-0");
        assert_eq!(the_only("i", ids(0)).unwrap_err().document()["code"], "not_found");
        let several = the_only("i", ids(7)).unwrap_err().document()["detail"].to_string();
        assert!(several.contains("7 sessions") && several.contains("id-4, …"), "{several}");
    }
}
