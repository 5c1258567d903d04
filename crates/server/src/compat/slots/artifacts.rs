//! `/artifacts/read` and `/artifacts/list`: files of a slot on their way out, and what there is.

use super::envelope::{Refusal, ok};
use super::files::{OUTSIDE, Obstacle, head, in_workspace, open, shown};
use super::handlers::{Fields, text};
use super::pool::Turn;
use super::python::{self, clamped, truthy};
use aws_lc_rs::digest::{SHA256, digest};
use axum::http::StatusCode;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use workroom_types::{FileInfo, FileKind, ListFiles};

/// Bytes of one file, or of one archive.
pub(super) const LARGEST: u64 = 5_000_000;

/// Entries of one list, or of one archive.
pub(super) const MOST_ENTRIES: u64 = 5_000;

/// The most entries that the engine lists at once.
const PAGE: u64 = 10_000;

pub(super) async fn read(turn: &mut Turn<'_>, fields: &Fields) -> Result<Response, Refusal> {
    let path = text(fields, "path", "")?;
    let (file, info) = open(turn, path).await.map_err(|obstacle| refusal(obstacle, path))?;
    let encoding = encoding(fields.get("encoding"))?;
    let limit = clamped(fields.get("max_bytes"), LARGEST, 1, LARGEST);
    let (data, size) = head(file, limit).await.map_err(|error| Refusal::unexpected(error.to_string()))?;
    let sha256 = truthy(fields.get("include_sha256"), false).then(|| hex(digest(&SHA256, &data).as_ref()));
    let content = match encoding {
        "text" => String::from_utf8_lossy(&data).into_owned(),
        _ => STANDARD.encode(&data),
    };
    let shown = shown(&info.path);
    Ok(ok(&json!({
        "success": true,
        "content": content,
        "encoding": encoding,
        "truncated": size > data.len() as u64,
        "bytes": data.len(),
        "file_size": size,
        "mime": mime(&shown),
        "path": shown,
        "sha256": sha256,
    })))
}

fn encoding(given: Option<&Value>) -> Result<&'static str, Refusal> {
    let given = given.filter(|value| truthy(Some(value), false)).map_or("text".to_owned(), python::shown);
    match python::strip(&given).to_lowercase().as_str() {
        "text" => Ok("text"),
        "base64" => Ok("base64"),
        _ => Err(Refusal::new(StatusCode::BAD_REQUEST, format!("Unsupported encoding: {given}"))),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// By the end of a name.
fn mime(path: &str) -> &'static str {
    let name = path.rsplit('/').next().unwrap_or_default().to_lowercase();
    // A name that is nothing but an ending has none.
    let (stem, ending) = name.rsplit_once('.').filter(|(stem, _)| !stem.is_empty()).unwrap_or((&name, ""));
    match ending {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "webp" => "image/webp",
        "gif" => "image/gif",
        "txt" | "log" => "text/plain",
        "json" => "application/json",
        "xml" => "application/xml",
        "html" => "text/html",
        "md" => "text/markdown",
        "tgz" => "application/gzip",
        "gz" if stem.ends_with(".tar") => "application/gzip",
        _ => "application/octet-stream",
    }
}

/// Words for what stands in the way of a file that was asked for.
pub(super) fn refusal(obstacle: Obstacle, path: &str) -> Refusal {
    match obstacle {
        Obstacle::Outside => Refusal::new(StatusCode::FORBIDDEN, OUTSIDE),
        Obstacle::NotThere => Refusal::new(StatusCode::NOT_FOUND, format!("Not found: {path}")),
        Obstacle::NotAFile => Refusal::new(StatusCode::BAD_REQUEST, format!("Not a file: {path}")),
        Obstacle::Other(problem) => Refusal::unexpected(problem.to_string()),
    }
}

pub(super) async fn list(turn: &mut Turn<'_>, fields: &Fields) -> Result<Response, Refusal> {
    let path = text(fields, "path", ".")?;
    let recursive = truthy(fields.get("recursive"), false);
    let limit = clamped(fields.get("max_entries"), MOST_ENTRIES, 1, MOST_ENTRIES);
    let mut listing = match Listing::open(turn, path, recursive).await {
        Ok(listing) => listing,
        // What is no directory is listed alone, if it is a file.
        Err(Obstacle::NotAFile) => {
            let (_, info) = match open(turn, path).await {
                Err(Obstacle::NotAFile) => return Err(unsupported(path)),
                found => found.map_err(|obstacle| refusal(obstacle, path))?,
            };
            let entries = [entry(&shown(&info.path), false, &info)];
            return Ok(ok(&json!({ "success": true, "entries": entries, "truncated": false })));
        }
        Err(obstacle) => return Err(refusal(obstacle, path)),
    };
    let mut entries: Vec<Value> = Vec::new();
    let mut truncated = false;
    while let Some(info) = listing.next(turn, limit + 1).await.map_err(|obstacle| refusal(obstacle, path))? {
        if entries.len() as u64 == limit {
            truncated = true;
            break;
        }
        entries.push(described(turn, info).await);
    }
    Ok(ok(&json!({ "success": true, "entries": entries, "truncated": truncated })))
}

fn unsupported(path: &str) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, format!("Unsupported path type: {path}"))
}

fn entry(path: &str, is_dir: bool, info: &FileInfo) -> Value {
    json!({ "path": path, "is_dir": is_dir, "size": info.size, "mtime": info.mtime.0 as f64 / 1000.0 })
}

/// An entry of a list under its own name. A link is as what it leads to, unless that is nothing in the workspace.
async fn described(turn: &mut Turn<'_>, info: FileInfo) -> Value {
    let path = shown(&info.path);
    match info.kind {
        FileKind::Symlink => match open(turn, &path).await {
            Ok((_, target)) => entry(&path, false, &target),
            Err(Obstacle::NotAFile) => {
                let is_dir = Listing::open(turn, &path, false).await.is_ok();
                entry(&path, is_dir, &info)
            }
            Err(_) => entry(&path, false, &info),
        },
        kind => entry(&path, kind == FileKind::Directory, &info),
    }
}

/// What is in a directory, page by page, sorted by path.
pub(super) struct Listing {
    session: String,
    request: ListFiles,
    page: std::vec::IntoIter<FileInfo>,
    is_last: bool,
}

impl Listing {
    pub(super) async fn open(turn: &mut Turn<'_>, path: &str, recursive: bool) -> Result<Listing, Obstacle> {
        let path = in_workspace(path).ok_or(Obstacle::Outside)?;
        let session = turn.session().await.map_err(Obstacle::Other)?;
        let request = ListFiles { path, recursive, limit: Some(1), ..ListFiles::default() };
        // One entry tells whether it is a directory.
        let first = turn.files(&session).list(request.clone()).await?;
        let mut listing = Listing { session, request, page: Vec::new().into_iter(), is_last: false };
        listing.take(first);
        Ok(listing)
    }

    fn take(&mut self, page: workroom_types::FileList) {
        self.is_last = page.next.is_none();
        self.request.cursor = page.next;
        self.page = page.entries.into_iter();
    }

    /// The next entry. `about`: how many are wanted in all.
    pub(super) async fn next(&mut self, turn: &Turn<'_>, about: u64) -> Result<Option<FileInfo>, Obstacle> {
        loop {
            if let Some(info) = self.page.next() {
                return Ok(Some(info));
            }
            if self.is_last {
                return Ok(None);
            }
            self.request.limit = Some(about.clamp(1, PAGE) as u32);
            let page = turn.files(&self.session).list(self.request.clone()).await?;
            self.take(page);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_known_by_the_ends_of_names() {
        for (path, kind) in [
            ("a/b.PNG", "image/png"),
            ("x.jpeg", "image/jpeg"),
            ("run.log", "text/plain"),
            ("a.tar.gz", "application/gzip"),
            ("a.tgz", "application/gzip"),
            ("a.gz", "application/octet-stream"),
            ("noending", "application/octet-stream"),
            (".txt", "application/octet-stream"),
            (".asciinema.cast", "application/octet-stream"),
            ("d.md/x", "application/octet-stream"),
        ] {
            assert_eq!(mime(path), kind, "{path}");
        }
    }
}
