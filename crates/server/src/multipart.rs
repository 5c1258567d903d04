//! `multipart/form-data`, read piece by piece: several files in one body, none of them in memory.

use crate::body::BodySource;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use bytes::{Buf, Bytes, BytesMut};
use memchr::memmem;
use workroom_engine::Source;
use workroom_types::{Problem, ProblemCode};

const LARGEST_HEAD: usize = 16 << 10;
const LONGEST_BOUNDARY: usize = 70;

pub(crate) struct Multipart<S> {
    source: S,
    /// Line break, two dashes, the boundary.
    delimiter: Vec<u8>,
    buffer: BytesMut,
    /// Within a part's contents.
    inside: bool,
}

/// The head of one part.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// The field's name, then the file's; text as paths are written.
    pub(crate) name: String,
    pub(crate) filename: Option<String>,
}

/// The boundary that a request's content type names.
pub(crate) fn boundary(headers: &HeaderMap) -> Result<String, Problem> {
    let given = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut parts = given.split(';');
    let is_multipart =
        parts.next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("multipart/form-data"));
    let boundary = parts.find_map(|part| {
        let (name, value) = part.split_once('=')?;
        name.trim().eq_ignore_ascii_case("boundary").then(|| value.trim().trim_matches('"').to_owned())
    });
    match boundary {
        Some(boundary) if is_multipart && (1..=LONGEST_BOUNDARY).contains(&boundary.len()) => Ok(boundary),
        _ => Err(Problem::new(
            ProblemCode::UnsupportedMediaType,
            match given {
                "" => "the request has no Content-Type".to_owned(),
                given => format!("the body is {given}"),
            },
            "send files as `multipart/form-data; boundary=…`, or one file with PUT",
        )),
    }
}

impl Multipart<BodySource> {
    pub(crate) fn new(source: BodySource, boundary: &str) -> Multipart<BodySource> {
        Multipart::of(source, boundary)
    }
}

impl<S: Source> Multipart<S> {
    fn of(source: S, boundary: &str) -> Multipart<S> {
        let delimiter = format!("\r\n--{boundary}").into_bytes();
        // The first delimiter needs no line break before it; what comes before that one is passed over.
        Multipart { source, delimiter, buffer: BytesMut::from(&b"\r\n"[..]), inside: true }
    }

    /// The next part, after what is left of the one before.
    pub(crate) async fn next_part(&mut self) -> Result<Option<Part>, Problem> {
        while self.next_piece().await?.is_some() {}
        while self.buffer.len() < 2 {
            self.more().await?;
        }
        if self.buffer.starts_with(b"--") {
            return Ok(None);
        }
        let head = loop {
            if let Some(end) = memmem::find(&self.buffer, b"\r\n\r\n") {
                let head = self.buffer.split_to(end);
                self.buffer.advance(4);
                break head;
            }
            if self.buffer.len() > LARGEST_HEAD {
                return Err(malformed("the head of a part is too long"));
            }
            self.more().await?;
        };
        self.inside = true;
        part(&head).map(Some)
    }

    /// The next piece of the part's contents; nothing at its end.
    async fn next_piece(&mut self) -> Result<Option<Bytes>, Problem> {
        while self.inside {
            if let Some(end) = memmem::find(&self.buffer, &self.delimiter) {
                let piece = self.buffer.split_to(end);
                self.buffer.advance(self.delimiter.len());
                self.inside = false;
                return Ok((!piece.is_empty()).then(|| piece.freeze()));
            }
            // The last bytes may be the beginning of a delimiter.
            let sure = self.buffer.len().saturating_sub(self.delimiter.len() - 1);
            if sure > 0 {
                return Ok(Some(self.buffer.split_to(sure).freeze()));
            }
            self.more().await?;
        }
        Ok(None)
    }

    async fn more(&mut self) -> Result<(), Problem> {
        match self.source.next().await? {
            Some(piece) => self.buffer.extend_from_slice(&piece),
            None => return Err(malformed("it ends in the middle")),
        }
        Ok(())
    }
}

/// The contents of the part that was begun last.
impl<S: Source> Source for &mut Multipart<S> {
    async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        self.next_piece().await
    }
}

fn malformed(why: &str) -> Problem {
    Problem::invalid(format!("the body is not multipart/form-data: {why}"), "send it whole")
}

fn part(head: &[u8]) -> Result<Part, Problem> {
    for line in head.split(|byte| *byte == b'\n') {
        let line = line.trim_ascii();
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        if !line[..colon].eq_ignore_ascii_case(b"content-disposition") {
            continue;
        }
        let value = &line[colon + 1..];
        let name = parameter(value, b"name").ok_or_else(|| malformed("a part has no name"))?;
        let filename = parameter(value, b"filename").filter(|name| !name.is_empty());
        return Ok(Part {
            name: crate::call::path_text(&name),
            filename: filename.map(|name| crate::call::path_text(&name)),
        });
    }
    Err(malformed("a part has no Content-Disposition"))
}

/// A parameter's value, as browsers and curl write it: in quotes, with `"` and line breaks escaped.
fn parameter(value: &[u8], wanted: &[u8]) -> Option<Vec<u8>> {
    let mut rest = value;
    loop {
        let semicolon = rest.iter().position(|byte| *byte == b';')?;
        rest = &rest[semicolon + 1..];
        let equals = rest.iter().position(|byte| *byte == b'=')?;
        let name = rest[..equals].trim_ascii();
        rest = &rest[equals + 1..];
        let mut found = Vec::new();
        if let Some(quoted) = rest.strip_prefix(b"\"") {
            rest = quoted;
            loop {
                match rest {
                    [b'\\', b'"', after @ ..] => {
                        found.push(b'"');
                        rest = after;
                    }
                    [b'"', after @ ..] => {
                        rest = after;
                        break;
                    }
                    [byte, after @ ..] => {
                        found.push(*byte);
                        rest = after;
                    }
                    [] => return None,
                }
            }
        } else {
            let end = rest.iter().position(|byte| *byte == b';').unwrap_or(rest.len());
            found.extend(rest[..end].trim_ascii());
            rest = &rest[end..];
        }
        if name.eq_ignore_ascii_case(wanted) {
            return Some(unescaped(&found));
        }
    }
}

/// `%22`, `%0D` and `%0A`, and no others, are how a form writes what would end a quoted name.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        let escaped = rest.get(..3).and_then(|three| match &three.to_ascii_uppercase()[..] {
            b"%22" => Some(b'"'),
            b"%0D" => Some(b'\r'),
            b"%0A" => Some(b'\n'),
            _ => None,
        });
        out.push(escaped.unwrap_or(byte));
        rest = if escaped.is_some() { &rest[3..] } else { after };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    struct Pieces(VecDeque<Bytes>);

    impl Source for Pieces {
        async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
            Ok(self.0.pop_front())
        }
    }

    const BODY: &[u8] = b"preamble\r\n--XX\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\none\r\n--X\r\n\
        --XX\r\nContent-Type: text/plain\r\ncontent-disposition: form-data; name=\"f\"; filename=\"x \\\" %22\xff.txt\"\r\n\r\n\
        \r\n--XX\r\nContent-Disposition: form-data; filename=plain; name=last\r\n\r\n\r\n\r\n--XX--\r\nepilogue";

    async fn parts(size: usize) -> Result<Vec<(Part, Vec<u8>)>, Problem> {
        let pieces = BODY.chunks(size).map(Bytes::copy_from_slice).collect();
        let mut multipart = Multipart::of(Pieces(pieces), "XX");
        let mut found = Vec::new();
        while let Some(part) = multipart.next_part().await? {
            let mut content = Vec::new();
            while let Some(piece) = (&mut multipart).next().await? {
                content.extend(piece);
            }
            found.push((part, content));
        }
        Ok(found)
    }

    #[tokio::test]
    async fn parts_are_found_however_the_body_is_cut() {
        for size in (1..40).chain([BODY.len()]) {
            let found = parts(size).await.expect("parts");
            assert_eq!(found.len(), 3, "in pieces of {size}");
            assert_eq!(found[0].0, Part { name: "a".into(), filename: None });
            assert_eq!(found[0].1, b"one\r\n--X");
            assert_eq!(found[1].0.filename.as_deref(), Some("x \" \"\\xff.txt"));
            assert_eq!(found[1].1, b"");
            assert_eq!(found[2].0, Part { name: "last".into(), filename: Some("plain".into()) });
            assert_eq!(found[2].1, b"\r\n");
        }
    }

    #[tokio::test]
    async fn a_part_that_is_not_wanted_is_passed_over() {
        let mut multipart = Multipart::of(Pieces([Bytes::from_static(BODY)].into()), "XX");
        let mut names = Vec::new();
        while let Some(part) = multipart.next_part().await.expect("parts") {
            names.push(part.name);
        }
        assert_eq!(names, ["a", "f", "last"]);
    }

    #[tokio::test]
    async fn a_body_that_ends_early_is_refused() {
        for cut in 0..BODY.len() - 14 {
            let mut multipart = Multipart::of(Pieces([Bytes::copy_from_slice(&BODY[..cut])].into()), "XX");
            let ended = loop {
                match multipart.next_part().await {
                    Ok(Some(_)) => {}
                    Ok(None) => break None,
                    Err(problem) => break Some(problem.status),
                }
            };
            assert_eq!(ended, Some(400), "cut at {cut}");
        }
    }

    #[test]
    fn a_boundary_is_what_the_content_type_says() {
        let of = |value: &'static str| {
            boundary(&HeaderMap::from_iter([(CONTENT_TYPE, value.parse().expect("a header"))]))
        };
        assert_eq!(of("multipart/form-data; charset=x; boundary=\"a b\"").expect("one"), "a b");
        for wrong in ["multipart/form-data", "text/plain; boundary=a", "multipart/form-data; boundary="] {
            assert_eq!(of(wrong).expect_err(wrong).status, 415);
        }
    }
}
