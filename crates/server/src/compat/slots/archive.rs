//! `/artifacts/archive`: files of a slot in one `tar.gz`, packed here from files that the room hands out.

use super::artifacts::{LARGEST, Listing, MOST_ENTRIES, refusal};
use super::envelope::{Refusal, ok};
use super::files::{Obstacle, open, open_found};
use super::handlers::{Fields, text};
use super::pool::Turn;
use super::python::{self, clamped, truthy};
use axum::http::StatusCode;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStringExt;
use tokio::sync::mpsc;
use workroom_types::{FileInfo, FileKind, unescape};

/// Files that are open and wait to be packed.
const WAITING: usize = 8;

pub(super) async fn archive(turn: &mut Turn<'_>, fields: &Fields) -> Result<Response, Refusal> {
    check_format(fields.get("format"))?;
    let path = text(fields, "path", ".")?;
    let limit = clamped(fields.get("max_bytes"), LARGEST, 1, LARGEST);
    let most = clamped(fields.get("max_entries"), MOST_ENTRIES, 1, MOST_ENTRIES);
    let (members, packed) = mpsc::channel(WAITING);
    let packing = tokio::task::spawn_blocking(move || pack(packed, limit));
    let chosen = choose(turn, path, most, members).await?;
    let packed = packing.await.map_err(|error| Refusal::unexpected(error.to_string()))?;
    let packed =
        packed.map_err(|error| Refusal::unexpected(format!("the archive cannot be made: {error}")))?;
    if packed.size > limit {
        let error = format!("Archive too large: {} bytes (max {limit})", packed.size);
        return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, error).with("bytes", json!(packed.size)));
    }
    Ok(ok(&json!({
        "success": true,
        "content": STANDARD.encode(&packed.data),
        "encoding": "base64",
        "format": "tar.gz",
        "bytes": packed.size,
        "entry_count": chosen.count,
        "truncated": chosen.truncated,
        "skipped": chosen.skipped,
    })))
}

fn check_format(given: Option<&Value>) -> Result<(), Refusal> {
    let given = given.filter(|value| truthy(Some(value), false)).map_or("tar.gz".to_owned(), python::shown);
    match python::strip(&given).to_lowercase().as_str() {
        "tar.gz" | "tgz" => Ok(()),
        _ => Err(Refusal::new(StatusCode::BAD_REQUEST, format!("Unsupported archive format: {given}"))),
    }
}

/// A file that goes into the archive, by its name in the workspace.
struct Member {
    name: OsString,
    file: File,
    info: FileInfo,
}

/// What became of all that was found.
#[derive(Default)]
struct Chosen {
    count: u64,
    /// More files were there than were wanted.
    truncated: bool,
    /// What is neither a file nor a directory; and links that lead out of the workspace, to a directory, or nowhere.
    skipped: u64,
}

/// Hands all files below a path to the packer, in the order of their names.
async fn choose(
    turn: &mut Turn<'_>,
    path: &str,
    most: u64,
    members: mpsc::Sender<Member>,
) -> Result<Chosen, Refusal> {
    let mut chosen = Chosen::default();
    let mut listing = match Listing::open(turn, path, true).await {
        Ok(listing) => listing,
        Err(Obstacle::NotAFile) => {
            let (file, info) = match open(turn, path).await {
                Err(Obstacle::NotAFile) => {
                    let error = format!("Unsupported path type: {path}");
                    return Err(Refusal::new(StatusCode::BAD_REQUEST, error));
                }
                found => found.map_err(|obstacle| refusal(obstacle, path))?,
            };
            chosen.count = 1;
            // Whether it was taken the packer says.
            let _ = members.send(Member { name: name_of(&info.path), file, info }).await;
            return Ok(chosen);
        }
        Err(obstacle) => return Err(refusal(obstacle, path)),
    };
    while let Some(found) = listing.next(turn, u64::MAX).await.map_err(|obstacle| refusal(obstacle, path))? {
        if found.kind == FileKind::Directory {
            continue;
        }
        let name = name_of(&found.path);
        let opened = match found.kind {
            FileKind::File | FileKind::Symlink => open_found(turn, found.path).await,
            _ => Err(Obstacle::NotAFile),
        };
        match opened {
            Ok(_) if chosen.count == most => {
                chosen.truncated = true;
                break;
            }
            Ok((file, info)) => {
                chosen.count += 1;
                if members.send(Member { name, file, info }).await.is_err() {
                    break;
                }
            }
            Err(Obstacle::Other(problem)) => return Err(Refusal::unexpected(problem.to_string())),
            Err(_) => chosen.skipped += 1,
        }
    }
    Ok(chosen)
}

/// The bytes of a name, which need not be text.
fn name_of(path: &str) -> OsString {
    match unescape(path) {
        Ok(bytes) => OsString::from_vec(bytes),
        Err(_) => path.into(),
    }
}

/// An archive: all of it, or only its size if that is too much.
struct Packed {
    data: Vec<u8>,
    size: u64,
}

fn pack(mut members: mpsc::Receiver<Member>, limit: u64) -> io::Result<Packed> {
    let sink = Sink { data: Vec::new(), size: 0, limit };
    let mut builder = tar::Builder::new(GzEncoder::new(sink, Compression::default()));
    while let Some(Member { name, file, info }) = members.blocking_recv() {
        let size = file.metadata()?.len();
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Regular);
        header.set_size(size);
        header.set_mode(u32::from_str_radix(&info.mode, 8).unwrap_or(0o644) & 0o777);
        header.set_mtime(u64::try_from(info.mtime.0 / 1000).unwrap_or(0));
        // As many bytes as the header says, although the file may become shorter or longer meanwhile.
        let content = file.chain(io::repeat(0)).take(size);
        builder.append_data(&mut header, &name, content)?;
    }
    let Sink { data, size, .. } = builder.into_inner()?.finish()?;
    Ok(Packed { data, size })
}

/// Counts what is written to it, and keeps it while it is not too much.
struct Sink {
    data: Vec<u8>,
    size: u64,
    limit: u64,
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.size += bytes.len() as u64;
        match self.size > self.limit {
            true => self.data = Vec::new(),
            false => self.data.extend_from_slice(bytes),
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
