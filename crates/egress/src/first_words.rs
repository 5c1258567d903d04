//! What a connection says first, as far as it must be known to tell whether it is for the name it was opened for.
//!
//! ```text
//!  first byte 22 ─────────────▶ TLS: wait for the whole ClientHello ──▶ its name, compared
//!  a line "… HTTP/1.x" ───────▶ HTTP: every request is looked at from here on
//!  a line "… HTTP/2" ─────────▶ refused: its requests cannot be compared one by one
//!  anything else ─────────────▶ opaque: the address was judged, there is no name to compare
//! ```
//!
//! Only the client's words are held back, and only once it has begun to speak: a server that speaks first (ssh, mail,
//! many databases) is heard at once. A client that begins a line or a handshake and does not finish it in time is
//! refused, because half a line passed on unread could become anything.

use crate::client_hello::{self, Hello};

/// A request line longer than this is no longer waited for; servers take 8 KiB.
pub(crate) const LONGEST_LINE: usize = 16 * 1024;

#[derive(Debug, PartialEq, Eq)]
pub enum FirstWords {
    NeedsMore,
    Tls {
        server_name: Option<Vec<u8>>,
    },
    Http,
    /// Neither; what it is does not matter.
    Opaque,
    Unreadable(&'static str),
}

/// Reads as much as the client has said so far.
pub fn read(bytes: &[u8]) -> FirstWords {
    match client_hello::read(bytes) {
        Hello::NeedsMore => return FirstWords::NeedsMore,
        Hello::Complete { server_name } => return FirstWords::Tls { server_name },
        Hello::Malformed(why) => return FirstWords::Unreadable(why),
        Hello::NotTls => {}
    }
    // Servers skip empty lines before a request, so empty lines do not make it something else.
    let Some(start) = bytes.iter().position(|&byte| byte != b'\r' && byte != b'\n') else {
        return if bytes.len() < LONGEST_LINE {
            FirstWords::NeedsMore
        } else {
            FirstWords::Unreadable("nothing but empty lines")
        };
    };
    read_line(&bytes[start..])
}

/// Reads what the client has said when it will say no more.
pub fn read_ended(bytes: &[u8]) -> FirstWords {
    match read(bytes) {
        FirstWords::NeedsMore if client_hello::read(bytes) == Hello::NeedsMore => {
            FirstWords::Unreadable("a handshake that breaks off")
        }
        // The end ends the line as well.
        FirstWords::NeedsMore => match read(&[bytes, b"\n"].concat()) {
            FirstWords::NeedsMore => FirstWords::Opaque,
            otherwise => otherwise,
        },
        otherwise => otherwise,
    }
}

fn read_line(bytes: &[u8]) -> FirstWords {
    let end = bytes.iter().position(|&byte| byte == b'\n');
    let line = &bytes[..end.unwrap_or(bytes.len())];
    // Servers differ in what they let pass in a request line. None takes a NUL, and none takes a method with control
    // bytes or bytes beyond ASCII in it; everything else might be a request until its line is whole.
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let method = line.split(|&byte| byte == b' ' || byte == b'\t').next().unwrap_or_default();
    if line.contains(&0) || method.len() > 64 || !method.iter().all(u8::is_ascii_graphic) {
        return FirstWords::Opaque;
    }
    match (end, version(line)) {
        (Some(_), Some(b"HTTP/2.0")) => {
            FirstWords::Unreadable("HTTP/2 without TLS, whose requests cannot be compared with the name")
        }
        (Some(_), Some(_)) => FirstWords::Http,
        (Some(_), None) if is_simple_request(line) => FirstWords::Http,
        (Some(_), None) => FirstWords::Opaque,
        (None, _) if bytes.len() >= LONGEST_LINE => {
            FirstWords::Unreadable("a first line of more than 16 KiB")
        }
        (None, _) => FirstWords::NeedsMore,
    }
}

/// The last word of a request line, if it is a version.
fn version(line: &[u8]) -> Option<&[u8]> {
    let word = line.trim_ascii_end().rsplit(|&byte| byte == b' ' || byte == b'\t').next()?;
    word.get(..5).is_some_and(|start| start.eq_ignore_ascii_case(b"HTTP/")).then_some(word)
}

/// A request as it was before versions: `GET /path`.
fn is_simple_request(line: &[u8]) -> bool {
    let mut words = line.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
    let get = words.next().is_some_and(|word| word.eq_ignore_ascii_case(b"GET"));
    get && words.next().is_some_and(|word| word.starts_with(b"/") || word.starts_with(b"http"))
}
