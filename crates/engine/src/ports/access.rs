//! Who may see a preview: tickets, which open it once, and passes, which a browser keeps.
//!
//! A ticket is random, kept as its hash, good for a minute and one use. A pass is signed with the published port's own
//! secret: it is good for that port of that session until it is unpublished, for some hours, and as long as the token
//! that the ticket was made with.

use super::PortHandle;
use crate::shared::Shared;
use aws_lc_rs::{digest, hmac};
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use workroom_types::{Problem, ProblemCode, Timestamp};

/// Seconds within which a ticket has to be used.
const TICKET_LASTS: u64 = 60;

/// Seconds for which a pass is good.
const PASS_LASTS: u64 = 12 * 3600;

/// Tickets of one port that wait to be used; the oldest go first.
const MOST_TICKETS: usize = 64;

struct Ticket {
    hash: String,
    /// By the clock that is never set: a ticket lives as long as the server at most.
    until: Instant,
    /// Who asked for it.
    caller: String,
}

#[derive(Default)]
pub(super) struct Tickets(Mutex<VecDeque<Ticket>>);

impl Tickets {
    pub(super) fn issue(&self, caller: &str) -> Result<(String, Timestamp), Problem> {
        let text = secret()?;
        let expires = Timestamp::now().plus_seconds(TICKET_LASTS);
        let until = Instant::now() + Duration::from_secs(TICKET_LASTS);
        let mut tickets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tickets.truncate(MOST_TICKETS - 1);
        tickets.push_front(Ticket { hash: hash(&text), until, caller: caller.to_owned() });
        Ok((text, expires))
    }

    /// Who asked for this ticket, the first time that it is shown.
    fn redeem(&self, text: &str) -> Option<String> {
        let (hash, now) = (hash(text), Instant::now());
        let mut tickets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tickets.retain(|ticket| ticket.until > now);
        let at = tickets.iter().position(|ticket| ticket.hash == hash)?;
        tickets.remove(at).map(|ticket| ticket.caller)
    }
}

impl PortHandle {
    /// A pass for whoever shows a ticket that was not used yet, and the seconds that it is good for.
    pub fn redeem(&self, ticket: &str) -> Option<(String, u64)> {
        let caller = self.published.tickets.redeem(ticket)?;
        let now = Timestamp::now();
        let expires = now.plus_seconds(PASS_LASTS).min(end_of(&self.shared, &caller)?);
        let seconds = u64::try_from(expires.0 - now.0).ok()? / 1000;
        let signed = format!("{}.{caller}", expires.0);
        Some((format!("{signed}.{}", hex(self.sign(&signed).as_ref())), seconds))
    }

    /// Whether this is a pass for this port, and still good.
    pub fn admits(&self, pass: &str) -> bool {
        let Some((signed, signature)) = pass.rsplit_once('.') else { return false };
        let Some((expires, caller)) = signed.split_once('.') else { return false };
        let (Ok(expires), Some(signature)) = (expires.parse(), unhex(signature)) else { return false };
        let now = Timestamp::now();
        hmac::verify(&self.key(), &self.message(signed), &signature).is_ok()
            && Timestamp(expires) > now
            && end_of(&self.shared, caller).is_some_and(|end| end > now)
    }

    fn key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, self.published.record.secret.as_bytes())
    }

    fn sign(&self, signed: &str) -> hmac::Tag {
        hmac::sign(&self.key(), &self.message(signed))
    }

    fn message(&self, signed: &str) -> Vec<u8> {
        format!("preview {} {} {signed}", self.published.session, self.published.record.port).into_bytes()
    }
}

/// When what a caller may see ends: with its token. `None` for one that is revoked.
fn end_of(shared: &Shared, caller: &str) -> Option<Timestamp> {
    match caller.strip_prefix("token:") {
        Some(id) => Some(shared.access.find(id)?.expires.unwrap_or(Timestamp(i64::MAX))),
        None => Some(Timestamp(i64::MAX)),
    }
}

/// 32 random bytes, as text.
pub(super) fn secret() -> Result<String, Problem> {
    let mut bytes = [0u8; 32];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(filled) if filled == bytes.len() => Ok(hex(&bytes)),
        _ => Err(Problem::new(ProblemCode::Internal, "the machine gives no randomness", "")),
    }
}

fn hash(text: &str) -> String {
    hex(digest::digest(&digest::SHA256, text.as_bytes()).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_good_once_and_not_for_long() {
        let tickets = Tickets::default();
        let (text, expires) = tickets.issue("token:a").expect("a ticket");
        assert!(expires <= Timestamp::now().plus_seconds(TICKET_LASTS));
        assert_eq!(tickets.redeem("something else"), None);
        assert_eq!(tickets.redeem(&text).as_deref(), Some("token:a"));
        assert_eq!(tickets.redeem(&text), None);

        let (late, _) = tickets.issue("token:a").expect("a ticket");
        tickets.0.lock().expect("not poisoned")[0].until = Instant::now();
        assert_eq!(tickets.redeem(&late), None, "its time is over");
    }

    #[test]
    fn tickets_that_nobody_uses_take_no_more_space_than_so() {
        let tickets = Tickets::default();
        let (first, _) = tickets.issue("token:a").expect("a ticket");
        let last = (0..MOST_TICKETS).map(|_| tickets.issue("token:a").expect("a ticket").0).last();
        assert_eq!(tickets.0.lock().expect("not poisoned").len(), MOST_TICKETS);
        assert_eq!(tickets.redeem(&first), None, "the oldest is gone");
        assert!(tickets.redeem(&last.expect("the last")).is_some());
    }

    #[test]
    fn bytes_are_written_as_text_and_read_again() {
        assert_eq!(unhex(&hex(&[0, 127, 255])), Some(vec![0, 127, 255]));
        for wrong in ["0", "0g", "éé", "+1"] {
            assert_eq!(unhex(wrong), None, "{wrong}");
        }
    }
}
