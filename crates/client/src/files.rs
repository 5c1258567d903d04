//! Files of a session's room: looked at, read, written, changed, searched, packed, watched.

use crate::ClientError;
use crate::body::Upload;
use crate::call::{Call, Client, EVENT_STREAM, decode};
use crate::download::Download;
use crate::events::SILENCE;
use crate::sessions::session_path;
use crate::sse::{SseBody, StreamEnd};
use crate::types::{
    ApplyPatch, ArchiveFormat, Deleted, DiskUse, EditFile, Edited, FileContent, FileInfo, FileList, FilePath,
    Imported, ListFiles, MakeDirectory, Patched, ReadFile, SearchFiles, SearchResult, Transfer, WatchEvent,
};
use crate::url::{query, segment};
use hyper::{Method, StatusCode};
use serde::Serialize;

pub(crate) const BYTES: &str = "application/octet-stream";
const ANYTHING: &str = "application/octet-stream, application/problem+json";

/// A file to be written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WriteFile {
    pub path: String,
    pub root: bool,
    /// Add to the end of what is there.
    pub append: bool,
    /// In octal, such as `0755`.
    pub mode: Option<String>,
    /// Flush it to the disk before it is answered for.
    pub sync: bool,
    /// Only over the file that has this etag.
    pub if_match: Option<String>,
    /// Only where there is none.
    pub if_none: bool,
}

#[derive(Serialize)]
struct WriteQuery<'a> {
    append: bool,
    mode: Option<&'a str>,
    sync: bool,
    root: bool,
}

#[derive(Serialize)]
struct DeleteQuery {
    recursive: bool,
    root: bool,
}

#[derive(Serialize)]
struct WatchQuery<'a> {
    path: &'a str,
    recursive: bool,
    root: bool,
}

#[derive(Serialize)]
struct ExportQuery<'a> {
    path: &'a str,
    format: ArchiveFormat,
    root: bool,
}

fn files_path(id: &str) -> String {
    format!("{}/files", session_path(id))
}

/// Slashes stay slashes, but for the first: nobody on the way is to take two of them for one.
fn file_path(id: &str, path: &str) -> String {
    let (lead, rest) = match path.strip_prefix('/') {
        Some(rest) => ("%2F", rest),
        None => ("", path),
    };
    let parts: Vec<String> = rest.split('/').map(segment).collect();
    let path = format!("{lead}{}", parts.join("/"));
    format!("{}/{}", files_path(id), if path.is_empty() { "%2E" } else { &path })
}

impl Client {
    /// One page of a directory.
    pub async fn list_files(&self, id: &str, request: &ListFiles) -> Result<FileList, ClientError> {
        self.value(&Call::get(format!("{}{}", files_path(id), query(request)))).await
    }

    pub async fn stat_file(&self, id: &str, request: &FilePath) -> Result<FileInfo, ClientError> {
        self.value(&Call::post(format!("{}/stat", files_path(id)))?.json(request)?).await
    }

    /// A part of a file, in one piece; as text unless told.
    pub async fn read_file(&self, id: &str, request: &ReadFile) -> Result<FileContent, ClientError> {
        let encoding = request.encoding.or(Some(Default::default()));
        let rest = ReadFile { path: String::new(), encoding, ..request.clone() };
        self.value(&Call::get(format!("{}{}", file_path(id, &request.path), query(&rest)))).await
    }

    /// All of a file, as it comes.
    pub async fn download(&self, id: &str, request: &FilePath) -> Result<Download, ClientError> {
        self.start_download(id, request, Vec::new()).await
    }

    /// The same, and after it its SHA-256.
    pub async fn download_with_digest(&self, id: &str, request: &FilePath) -> Result<Download, ClientError> {
        self.start_download(id, request, vec![("te", "trailers".into()), ("connection", "te".into())]).await
    }

    /// Bytes `from` and on, `length` of them or up to the end.
    pub async fn download_range(
        &self,
        id: &str,
        request: &FilePath,
        from: u64,
        length: Option<u64>,
    ) -> Result<Download, ClientError> {
        let last = length.map(|length| from.saturating_add(length).saturating_sub(1).to_string());
        let range = format!("bytes={from}-{}", last.unwrap_or_default());
        self.start_download(id, request, vec![("range", range)]).await
    }

    async fn start_download(
        &self,
        id: &str,
        request: &FilePath,
        headers: Vec<(&'static str, String)>,
    ) -> Result<Download, ClientError> {
        let root = if request.root { "?root=true" } else { "" };
        let call =
            Call::get(format!("{}{root}", file_path(id, &request.path))).accept(ANYTHING).headers(headers);
        Ok(Download::new(self, self.open(&call).await?))
    }

    /// Writes a file; says whether there was none before. It is not tried again when the connection breaks.
    pub async fn upload(
        &self,
        id: &str,
        file: &WriteFile,
        contents: Upload,
    ) -> Result<(FileInfo, bool), ClientError> {
        let WriteFile { path, root, append, mode, sync, .. } = file;
        let asked = WriteQuery { append: *append, mode: mode.as_deref(), sync: *sync, root: *root };
        let mut headers = Vec::new();
        if let Some(etag) = &file.if_match {
            headers.push(("if-match", if etag == "*" { etag.clone() } else { format!("\"{etag}\"") }));
        }
        if file.if_none {
            headers.push(("if-none-match", "*".into()));
        }
        let path = format!("{}{}", file_path(id, path), query(&asked));
        let call = Call::mutating(Method::PUT, path)?.headers(headers);
        let answer = self.send(&call, BYTES, contents).await?;
        Ok((decode("the upload", &answer.body)?, answer.status == StatusCode::CREATED))
    }

    /// Deleting what is gone succeeds.
    pub async fn delete_file(
        &self,
        id: &str,
        request: &FilePath,
        recursive: bool,
    ) -> Result<Deleted, ClientError> {
        let asked = query(&DeleteQuery { recursive, root: request.root });
        self.value(&Call::mutating(Method::DELETE, format!("{}{asked}", file_path(id, &request.path)))?).await
    }

    pub async fn make_directory(&self, id: &str, request: &MakeDirectory) -> Result<FileInfo, ClientError> {
        self.value(&Call::post(format!("{}/mkdir", files_path(id)))?.json(request)?).await
    }

    pub async fn move_file(&self, id: &str, request: &Transfer) -> Result<FileInfo, ClientError> {
        self.value(&Call::post(format!("{}/move", files_path(id)))?.json(request)?).await
    }

    pub async fn copy_file(&self, id: &str, request: &Transfer) -> Result<FileInfo, ClientError> {
        self.value(&Call::post(format!("{}/copy", files_path(id)))?.json(request)?).await
    }

    pub async fn edit_file(&self, id: &str, request: &EditFile) -> Result<Edited, ClientError> {
        self.value(&Call::post(format!("{}/edit", files_path(id)))?.json(request)?).await
    }

    pub async fn search_files(&self, id: &str, request: &SearchFiles) -> Result<SearchResult, ClientError> {
        self.value(&Call::post(format!("{}/search", files_path(id)))?.json(request)?).await
    }

    pub async fn patch_files(&self, id: &str, request: &ApplyPatch) -> Result<Patched, ClientError> {
        self.value(&Call::post(format!("{}/patch", files_path(id)))?.json(request)?).await
    }

    pub async fn disk_use(&self, id: &str, request: &FilePath) -> Result<DiskUse, ClientError> {
        self.value(&Call::post(format!("{}/usage", files_path(id)))?.json(request)?).await
    }

    /// Unpacks an archive into a directory: all of it, or nothing.
    pub async fn import_archive(
        &self,
        id: &str,
        directory: &FilePath,
        archive: Upload,
    ) -> Result<Imported, ClientError> {
        let path = format!("{}/archive{}", session_path(id), query(directory));
        let answer = self.send(&Call::post(path)?, BYTES, archive).await?;
        decode("the archive", &answer.body)
    }

    /// Packs a directory or a file; its number of entries and its SHA-256 come after it.
    pub async fn export_archive(
        &self,
        id: &str,
        what: &FilePath,
        format: ArchiveFormat,
    ) -> Result<Download, ClientError> {
        let asked = query(&ExportQuery { path: &what.path, format, root: what.root });
        let call = Call::get(format!("{}/archive{asked}", session_path(id)))
            .accept("*/*")
            .headers(vec![("te", "trailers".into()), ("connection", "te".into())]);
        Ok(Download::new(self, self.open(&call).await?))
    }

    /// What happens to files from now on.
    pub async fn watch_files(
        &self,
        id: &str,
        what: &FilePath,
        recursive: bool,
    ) -> Result<WatchStream, ClientError> {
        let asked = query(&WatchQuery { path: &what.path, recursive, root: what.root });
        let call = Call::get(format!("{}/watch{asked}", session_path(id))).accept(EVENT_STREAM);
        Ok(WatchStream { body: Some(SseBody::open(self, &call, Some(SILENCE)).await?) })
    }
}

/// Events of one watch.
pub struct WatchStream {
    body: Option<SseBody>,
}

impl WatchStream {
    /// The next event; nothing when the room has ended. What happens until another watch is begun is not told.
    pub async fn next(&mut self) -> Result<Option<WatchEvent>, ClientError> {
        while let Some(body) = &mut self.body {
            match body.next().await {
                Ok(event) if event.event == "gone" => self.body = None,
                // What a newer server also says is no event of a file.
                Ok(event) => match serde_json::from_str(&event.data) {
                    Ok(seen) => return Ok(Some(seen)),
                    Err(_) => continue,
                },
                Err(StreamEnd::Failed(error)) => return Err(error),
                Err(StreamEnd::Over) => {
                    return Err(ClientError::Transport("the server ended the watch; begin another".into()));
                }
                Err(StreamEnd::Broke(why)) => {
                    return Err(ClientError::Transport(format!("the watch broke off: {why}; begin another")));
                }
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_files_path_is_a_path_of_the_url() {
        assert_eq!(file_path("s", "src/a b.rs"), "/v1/sessions/s/files/src/a%20b.rs");
        assert_eq!(file_path("s", "/workspace/x"), "/v1/sessions/s/files/%2Fworkspace/x");
        assert_eq!(file_path("s", "../x\\xff"), "/v1/sessions/s/files/%2E%2E/x%5Cxff");
        assert_eq!(file_path("s", ""), "/v1/sessions/s/files/%2E");
    }
}
