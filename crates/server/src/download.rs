//! An open file as an answer: whole or a part of it, with what a client needs to ask less the next time.

use crate::reply::Failure;
use aws_lc_rs::digest::{Context as Hash, SHA256};
use axum::body::Body;
use axum::http::header::{
    ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_MATCH, IF_NONE_MATCH, IF_RANGE,
    LAST_MODIFIED, RANGE, TE, TRAILER, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use rustix::buffer::spare_capacity;
use std::fs::File;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, UNIX_EPOCH};
use tokio::task::JoinHandle;
use workroom_types::{FileInfo, Problem, ProblemCode};

/// As much as is read at once. Large, because each piece is read by another thread; two of them are in memory.
const PIECE: usize = 512 << 10;

pub(crate) const SHA256_TRAILER: HeaderName = HeaderName::from_static("x-workroom-sha256");

/// What a client may be told after the body, if it says that it listens.
pub(crate) fn takes_trailers(headers: &HeaderMap) -> bool {
    headers.get_all(TE).iter().filter_map(|value| value.to_str().ok()).any(|value| {
        value.split(',').any(|one| one.split(';').next().unwrap_or_default().trim() == "trailers")
    })
}

/// An etag as headers have it.
fn quoted(etag: &str) -> String {
    format!("\"{etag}\"")
}

/// The etags of a conditional header, without their quotes; `*` is `*`.
pub(crate) fn etags(headers: &HeaderMap, name: HeaderName) -> Vec<String> {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    let one = |text: &str| {
        let text = text.trim();
        text.strip_prefix("W/").unwrap_or(text).trim_matches('"').to_owned()
    };
    values.flat_map(|value| value.split(',')).map(one).filter(|etag| !etag.is_empty()).collect()
}

fn is_among(etag: &str, given: &[String]) -> bool {
    given.iter().any(|one| one == "*" || one == etag)
}

/// Which bytes are asked for.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    All,
    Part { from: u64, length: u64 },
    Nothing,
}

/// Several ranges, and what is no range, are passed over, as the standard has it: the whole file is right too.
fn wanted(headers: &HeaderMap, etag: &str, size: u64) -> Wanted {
    let held = headers.get(IF_RANGE).map(|value| value.to_str().unwrap_or_default().trim_matches('"'));
    if held.is_some_and(|held| held != etag) {
        return Wanted::All;
    }
    let range = headers.get(RANGE).and_then(|value| value.to_str().ok());
    let Some((first, last)) =
        range.and_then(|range| range.strip_prefix("bytes=")).and_then(|range| range.split_once('-'))
    else {
        return Wanted::All;
    };
    let (first, last) = (first.trim(), last.trim());
    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u64>());
    let (from, to) = match (number(first), number(last)) {
        // The last so many.
        (Some(_), Some(Ok(count))) if first.is_empty() => (size.saturating_sub(count), size),
        (Some(Ok(from)), Some(_)) if last.is_empty() => (from, size),
        (Some(Ok(from)), Some(Ok(to))) if from <= to => (from, to.saturating_add(1).min(size)),
        _ => return Wanted::All,
    };
    if from >= to { Wanted::Nothing } else { Wanted::Part { from, length: to - from } }
}

/// The file, or the part of it that the headers ask for.
pub(crate) fn answer(headers: &HeaderMap, file: File, info: &FileInfo) -> Result<Response, Problem> {
    let size = file.metadata().map_err(|error| unreadable(&error))?.len();
    let asked = etags(headers, IF_MATCH);
    if !asked.is_empty() && !is_among(&info.etag, &asked) {
        return Err(Problem::new(
            ProblemCode::PreconditionFailed,
            format!("the file has the etag {}", info.etag),
            "read it again",
        ));
    }
    let mut response = Response::new(Body::empty());
    describe(response.headers_mut(), info);
    if is_among(&info.etag, &etags(headers, IF_NONE_MATCH)) {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        return Ok(response);
    }
    let (from, length) = match wanted(headers, &info.etag, size) {
        Wanted::All => (0, size),
        Wanted::Part { from, length } => {
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
            let range = format!("bytes {from}-{}/{size}", from + length - 1);
            insert(response.headers_mut(), CONTENT_RANGE, &range);
            (from, length)
        }
        Wanted::Nothing => {
            let problem = Problem::new(
                ProblemCode::RangeNotSatisfiable,
                format!("the file has {size} bytes, and none of them is in the range"),
                "ask for bytes that there are",
            );
            let mut refused = Failure::from(problem).into_response();
            insert(refused.headers_mut(), CONTENT_RANGE, &format!("bytes */{size}"));
            return Ok(refused);
        }
    };
    let is_whole = response.status() == StatusCode::OK;
    let hash = (is_whole && takes_trailers(headers)).then(|| Hash::new(&SHA256));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    // It holds what somebody put there: no browser is to make a page of it.
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    match &hash {
        Some(_) => headers.insert(TRAILER, HeaderValue::from_static("x-workroom-sha256")),
        None => headers.insert(CONTENT_LENGTH, HeaderValue::from(length)),
    };
    let hashing = hash.is_some();
    let state = Reading { file: Arc::new(file), at: from, hash };
    *response.body_mut() =
        Body::new(FileBody { left: length, hashing, state: Some(state), pending: None, over: false });
    Ok(response)
}

/// What is known of a file without reading it.
fn describe(headers: &mut HeaderMap, info: &FileInfo) {
    insert(headers, ETAG, &quoted(&info.etag));
    let modified = UNIX_EPOCH + Duration::from_millis(u64::try_from(info.mtime.0).unwrap_or(0));
    // The text of a date has a place for four digits of a year.
    if info.mtime.0 < 253_402_300_800_000 {
        insert(headers, LAST_MODIFIED, &httpdate::fmt_http_date(modified));
    }
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
}

/// A room's words may be none that a header can carry; then it goes without.
fn insert(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

fn unreadable(error: &io::Error) -> Problem {
    Problem::new(ProblemCode::Internal, format!("the file cannot be read: {error}"), "")
}

/// Where reading stands; with the thread that reads, or here.
struct Reading {
    file: Arc<File>,
    at: u64,
    hash: Option<Hash>,
}

impl Reading {
    /// Reads on a thread that may wait for the disk.
    fn read(mut self, most: usize) -> io::Result<(Reading, Bytes)> {
        let mut piece = Vec::with_capacity(most);
        let read =
            rustix::io::retry_on_intr(|| rustix::io::pread(&self.file, spare_capacity(&mut piece), self.at))?;
        self.at += read as u64;
        if let Some(hash) = &mut self.hash {
            hash.update(&piece);
        }
        Ok((self, piece.into()))
    }
}

/// While a piece is on its way to the client the next one is read, and no further: a slow client holds no thread.
struct FileBody {
    left: u64,
    hashing: bool,
    state: Option<Reading>,
    pending: Option<JoinHandle<io::Result<(Reading, Bytes)>>>,
    over: bool,
}

impl FileBody {
    fn read_on(&mut self) {
        if let Some(state) = self.state.take() {
            let most = self.left.min(PIECE as u64) as usize;
            self.pending = Some(tokio::task::spawn_blocking(move || state.read(most)));
        }
    }

    /// After the last piece.
    fn trailers(&mut self) -> Option<Frame<Bytes>> {
        self.over = true;
        let hash = self.state.take()?.hash?;
        let text: String = hash.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        let mut trailers = HeaderMap::new();
        insert(&mut trailers, SHA256_TRAILER, &text);
        Some(Frame::trailers(trailers))
    }
}

impl hyper::body::Body for FileBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if self.over {
            return Poll::Ready(None);
        }
        if self.left == 0 {
            return Poll::Ready(self.trailers().map(Ok));
        }
        if self.pending.is_none() {
            self.read_on();
        }
        let Some(pending) = &mut self.pending else { return Poll::Ready(None) };
        let read =
            ready!(Pin::new(pending).poll(context)).unwrap_or_else(|error| Err(io::Error::other(error)));
        self.pending = None;
        let (state, piece) = match read {
            Ok(read) => read,
            Err(error) => return Poll::Ready(Some(Err(error))),
        };
        if piece.is_empty() {
            // A file that became shorter cannot be what was promised; the connection breaks.
            self.over = true;
            return Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into())));
        }
        self.left -= piece.len() as u64;
        self.state = Some(state);
        if self.left > 0 {
            self.read_on();
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.over || self.left == 0 && !self.hashing
    }

    fn size_hint(&self) -> SizeHint {
        if self.hashing { SizeHint::default() } else { SizeHint::with_exact(self.left) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use std::os::unix::fs::FileExt;
    use workroom_types::{FileKind, Timestamp};

    fn headers(given: &[(HeaderName, &str)]) -> HeaderMap {
        given.iter().map(|(name, value)| (name.clone(), value.parse().expect("a header"))).collect()
    }

    #[test]
    fn a_range_is_one_or_none() {
        let asked = |range| wanted(&headers(&[(RANGE, range)]), "e", 10);
        let part = |from, length| Wanted::Part { from, length };
        assert_eq!(asked("bytes=0-0"), part(0, 1));
        assert_eq!(asked("bytes=2-"), part(2, 8));
        assert_eq!(asked("bytes=-3"), part(7, 3));
        assert_eq!(asked("bytes=-30"), part(0, 10));
        assert_eq!(asked("bytes=5-99"), part(5, 5));
        for nothing in ["bytes=10-", "bytes=10-20", "bytes=-0", "bytes=99-100"] {
            assert_eq!(asked(nothing), Wanted::Nothing, "{nothing}");
        }
        for all in ["bytes=", "bytes=-", "bytes=5-2", "bytes=0-1,3-4", "bytes=+1-2", "lines=1-2", "x"] {
            assert_eq!(asked(all), Wanted::All, "{all}");
        }
        assert_eq!(wanted(&headers(&[(RANGE, "bytes=0-0")]), "e", 0), Wanted::Nothing);
        let held = |etag| wanted(&headers(&[(RANGE, "bytes=0-0"), (IF_RANGE, etag)]), "e", 10);
        assert_eq!((held("\"e\""), held("\"old\"")), (part(0, 1), Wanted::All));
    }

    #[test]
    fn etags_are_read_as_they_are_written() {
        let given = |value| etags(&headers(&[(IF_NONE_MATCH, value)]), IF_NONE_MATCH);
        assert_eq!(given("\"a\", W/\"b\" , \"c\""), ["a", "b", "c"]);
        assert_eq!(given("*"), ["*"]);
        assert!(etags(&HeaderMap::new(), IF_NONE_MATCH).is_empty());
    }

    fn a_file(content: &[u8]) -> (File, FileInfo) {
        let file = rustix::fs::memfd_create("file", rustix::fs::MemfdFlags::CLOEXEC).expect("memory");
        let file = File::from(file);
        file.write_all_at(content, 0).expect("written");
        let info = FileInfo {
            path: "a".into(),
            kind: FileKind::File,
            size: 0,
            mode: "0644".into(),
            mtime: Timestamp(784_111_777_000),
            target: None,
            etag: "e1".into(),
        };
        (file, info)
    }

    #[tokio::test]
    async fn a_file_is_given_whole_in_parts_or_not_again() {
        let content: Vec<u8> = (0..3 * PIECE as u32 / 2).map(|n| (n % 251) as u8).collect();
        let (file, info) = a_file(&content);
        let ask = |given: &[(HeaderName, &str)]| {
            answer(&headers(given), file.try_clone().expect("a file"), &info).expect("an answer")
        };
        let whole = ask(&[]);
        assert_eq!(whole.headers()[CONTENT_LENGTH], content.len().to_string().as_str());
        assert_eq!(whole.headers()[LAST_MODIFIED], "Sun, 06 Nov 1994 08:49:37 GMT");
        assert!(whole.into_body().collect().await.expect("a body").to_bytes() == content);
        let part = ask(&[(RANGE, "bytes=3-5")]);
        assert_eq!((part.status().as_u16(), &part.headers()[CONTENT_LENGTH]), (206, &HeaderValue::from(3)));
        assert_eq!(part.into_body().collect().await.expect("a body").to_bytes(), &content[3..6]);
        assert_eq!(ask(&[(IF_NONE_MATCH, "\"e1\"")]).status(), 304);
        let refused = ask(&[(RANGE, "bytes=99999999-")]);
        assert_eq!(refused.status(), 416);
        assert_eq!(refused.headers()[CONTENT_RANGE], format!("bytes */{}", content.len()).as_str());
        let told = ask(&[(TE, "gzip, trailers")]);
        assert!(!told.headers().contains_key(CONTENT_LENGTH));
        let told = told.into_body().collect().await.expect("a body");
        assert_eq!(told.trailers().expect("trailers")[&SHA256_TRAILER].len(), 64);
    }

    #[tokio::test]
    async fn a_file_that_shrinks_breaks_the_answer() {
        let (file, info) = a_file(&vec![7; 2 * PIECE]);
        let response =
            answer(&HeaderMap::new(), file.try_clone().expect("a file"), &info).expect("an answer");
        file.set_len(10).expect("cut");
        assert!(response.into_body().collect().await.is_err());
    }
}
