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
        page.sessions.iter().for_each(|known| found.look(text, &known.id, &known.name, &known.owner));
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

struct Known {
    id: String,
    owner: String,
}

/// Sessions that a text can mean.
#[derive(Default)]
struct Found {
    by_name: Vec<Known>,
    by_beginning: Vec<Known>,
}

impl Found {
    fn look(&mut self, text: &str, id: &str, name: &str, owner: &str) {
        if text.is_empty() {
            return;
        }
        let known = || Known { id: id.to_owned(), owner: owner.to_owned() };
        let last = id.rsplit('-').next().unwrap_or_default();
        if name == text {
            self.by_name.push(known());
        } else if id.starts_with(text) || last.starts_with(text) {
            self.by_beginning.push(known());
        }
    }

    /// A name is not taken away by ids of the same owner that happen to begin so. Somebody else's name takes nothing away from
    /// an admin who types the beginning of an id.
    fn meant(self) -> Vec<String> {
        let Found { by_name, mut by_beginning } = self;
        by_beginning.retain(|known| !by_name.iter().any(|named| named.owner == known.owner));
        by_name.into_iter().chain(by_beginning).map(|known| known.id).collect()
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
        let meant = |text: &str, sessions: &[(&str, &str, &str)]| {
            let mut found = Found::default();
            sessions.iter().for_each(|(id, name, owner)| found.look(text, id, name, owner));
            found.meant()
        };
        let one = (id, "build", "ada");
        for text in ["2026", id, "0a1b", "build"] {
            assert_eq!(meant(text, &[one]), [id], "{text}");
        }
        for text in ["", "120000", "a1b", "buil"] {
            assert!(meant(text, &[one]).is_empty(), "{text}");
        }
        let named = ("20260131-120000-ffffffff", "0a1b", "ada");
        assert_eq!(meant("0a1b", &[one, named]), [named.0], "a name goes before a beginning");
        assert_eq!(meant("0a1b", &[(id, "0a1b", "ada"), named]), [id, named.0], "two of a name are two");
        assert_eq!(meant("2026", &[one, named]), [id, named.0]);
        let strangers = (named.0, named.1, "eve");
        assert_eq!(meant("0a1b", &[one, strangers]), [named.0, id], "not before somebody else's");
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
