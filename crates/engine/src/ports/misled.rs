//! Browsers that were led to a published port by the name of a preview.
//!
//! Cookies know no ports. For `http://8080-SESSION.localhost:24817/` a browser sends what it keeps for the preview of that
//! name, its pass among it, to whichever room port 24817 was published for; and what that room sets, the preview gets.
//! Any page can lead a browser there. So the first words of a connection are looked at before they are passed on: a
//! request that calls for such a name is answered here, and the room sees nothing of it.
//!
//! Browsers say `Host` before all other headers, keep connections apart by name, and send a request's head at once. Who
//! is no browser has no cookies to lose.

/// What a browser asks with before it has been answered. For other methods it first asks with `OPTIONS`.
const METHODS: [&[u8]; 4] = [b"GET ", b"HEAD ", b"POST ", b"OPTIONS "];

/// How much is held of a request until its name has come. Addresses may be long.
const LONGEST: usize = 64 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beginning {
    /// It is none of ours.
    Passes,
    /// It may be a request, and does not say yet for which name.
    Unclear,
    Misled,
}

pub(super) fn look(said: &[u8]) -> Beginning {
    if !METHODS.iter().any(|method| said.starts_with(method)) {
        return Beginning::Passes;
    }
    let mut lines = said.split_inclusive(|byte| *byte == b'\n');
    let mut whole_line = || lines.next().filter(|line| line.ends_with(b"\n")).map(<[u8]>::trim_ascii_end);
    let unclear = if said.len() < LONGEST { Beginning::Unclear } else { Beginning::Misled };
    let Some(request) = whole_line() else { return unclear };
    // Other protocols have a GET too.
    if !request.ends_with(b" HTTP/1.1") && !request.ends_with(b" HTTP/1.0") {
        return Beginning::Passes;
    }
    loop {
        let Some(line) = whole_line() else { return unclear };
        if line.is_empty() {
            return Beginning::Passes;
        }
        let (name, value) = line.split_at(line.iter().position(|byte| *byte == b':').unwrap_or(line.len()));
        if name.eq_ignore_ascii_case(b"host") {
            let is_misled = is_of_a_preview(value.strip_prefix(b":").unwrap_or_default().trim_ascii());
            return if is_misled { Beginning::Misled } else { Beginning::Passes };
        }
    }
}

/// Whether this is the name of a preview or one below it, whose cookies reach up to it.
fn is_of_a_preview(authority: &[u8]) -> bool {
    let host = authority.split(|byte| *byte == b':').next().unwrap_or_default();
    host.split(|byte| *byte == b'.').any(is_port_and_session)
}

/// `8080-20260131-120000-0a1b2c3d`, and not `127-0-0-1`, which people call their own machine.
fn is_port_and_session(label: &[u8]) -> bool {
    let parts: Vec<&[u8]> = label.split(|byte| *byte == b'-').collect();
    let [port, date, time, random] = parts[..] else { return false };
    let digits = |part: &[u8]| part.iter().all(u8::is_ascii_digit);
    (1..=5).contains(&port.len())
        && (date.len(), time.len(), random.len()) == (8, 6, 8)
        && [port, date, time].into_iter().all(digits)
        && random.iter().all(u8::is_ascii_hexdigit)
}

/// What whoever was misled is told.
pub(super) fn answer() -> Vec<u8> {
    let text = "This is a published port. It is reached as 127.0.0.1 or localhost; \
                previews are reached by their names at the server's own port alone.\n";
    let head = "HTTP/1.1 421 Misdirected Request\r\nContent-Type: text/plain; charset=utf-8\r\n\
                X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\nConnection: close\r\n";
    format!("{head}Content-Length: {}\r\n\r\n{text}", text.len()).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREVIEW: &str = "8080-20260131-120000-0a1b2c3d.localhost:24817";

    #[test]
    fn a_request_for_the_name_of_a_preview_is_misled() {
        for host in [
            PREVIEW,
            "1-20260131-120000-0A1B2C3D.Rooms.Example",
            "x.8080-20260131-120000-0a1b2c3d.localhost",
            "8080-20260131-120000-0a1b2c3d.localhost.:1",
        ] {
            for request in [
                format!("GET / HTTP/1.1\r\nHost: {host}\r\nCookie: a=b\r\n\r\n"),
                format!("POST /x?y HTTP/1.1\r\nhost:{host}\r\n"),
                format!("OPTIONS * HTTP/1.1\nAccept: x\nHOST:   {host}  \n"),
            ] {
                assert_eq!(look(request.as_bytes()), Beginning::Misled, "{request}");
            }
        }
    }

    #[test]
    fn all_else_passes_at_once() {
        for said in [
            "GET / HTTP/1.1\r\nHost: localhost:24817\r\n",
            "GET / HTTP/1.1\r\nHost: 127-0-0-1.somewhere.example\r\n",
            "GET / HTTP/1.1\r\nHost: [::1]:1\r\n",
            "GET / HTTP/1.0\r\n\r\n",
            "GET key\r\n",
            "G",
            "GET",
            "SSH-2.0-x\r\n",
            "hold\n",
            "\u{0}\u{1}",
            "",
        ] {
            assert_eq!(look(said.as_bytes()), Beginning::Passes, "{said}");
        }
    }

    #[test]
    fn a_head_in_pieces_is_waited_for_and_not_for_ever() {
        let request = format!("GET / HTTP/1.1\r\nHost: {PREVIEW}\r\n");
        for end in "GET ".len()..request.len() {
            assert_eq!(look(&request.as_bytes()[..end]), Beginning::Unclear, "{end}");
        }
        let long = format!("GET /{}", "x".repeat(LONGEST));
        assert_eq!(look(long.as_bytes()), Beginning::Misled);
    }
}
