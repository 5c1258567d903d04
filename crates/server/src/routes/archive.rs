//! `/v1/sessions/{id}/archive`: a directory as one file, in and out.

use crate::call::Call;
use crate::download::takes_trailers;
use crate::idempotency::once_streamed;
use crate::openapi::{ArchiveParams, ExportParams, SessionPath};
use crate::pieces;
use crate::reply::{Answer, Reply};
use axum::http::HeaderValue;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, TRAILER};
use axum::response::Response;
use serde::Deserialize;
use workroom_types::{ArchiveCaps, ArchiveFormat, FilePath, Imported};

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ArchiveQuery {
    path: String,
    root: bool,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ExportQuery {
    path: String,
    format: ArchiveFormat,
    root: bool,
}

/// Unpack an archive into a directory
///
/// The body is a tar, a tar.gz, a tar.zst or a zip; which one is seen from its first bytes. What would lie outside the
/// directory, and what is neither file nor directory nor link, is refused, and then nothing of the archive is kept.
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/archive",
    tag = "files",
    operation_id = "import_archive",
    params(SessionPath, ArchiveParams),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses(
        (status = 200, description = "All of it is there", body = Imported),
        (status = 410, description = "The room ended meanwhile"),
        (status = 422, description = "The archive is broken or holds what is not taken in, or the Idempotency-Key came with another request"),
    ),
)]
pub(crate) async fn import(mut call: Call) -> Answer {
    let ArchiveQuery { path, root } = call.query()?;
    let id = call.id().to_owned();
    let mut source = call.source();
    once_streamed(call, move |engine, caller, _| {
        Box::pin(async move {
            let files = engine.files(caller, &id);
            let caps = ArchiveCaps::default();
            match files.import(FilePath { path, root }, caps, &mut source).await {
                Ok(imported) => Reply::ok(&imported),
                Err(problem) => {
                    source.pass_over().await;
                    Err(problem)
                }
            }
        })
    })
    .await
}

/// Pack a directory or a file
///
/// A client that sends `TE: trailers` is told the number of entries and the archive's SHA-256 in the trailers
/// `x-workroom-entries` and `x-workroom-sha256`. An archive that cannot be finished breaks the connection.
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/archive",
    tag = "files",
    operation_id = "export_archive",
    params(SessionPath, ExportParams),
    responses(
        (status = 200, description = "The archive", content(
            (Vec<u8> = "application/zstd"),
            (Vec<u8> = "application/gzip"),
            (Vec<u8> = "application/x-tar"),
            (Vec<u8> = "application/zip"),
        )),
        (status = 409, description = "The session is paused"),
        (status = 410, description = "The room ended meanwhile"),
        (status = 422, description = "A required layer cannot be had here"),
    ),
)]
pub(crate) async fn export(call: Call) -> Answer {
    let ExportQuery { path, format, root } = call.query()?;
    let name = file_name(&path, format);
    let request = FilePath { path, root };
    let export = call.engine().files(&call.caller, call.id()).export(request, format).await?;
    let with_trailers = takes_trailers(call.headers());
    let mut response = Response::new(pieces::body(export, with_trailers));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type(format)));
    if let Ok(value) = HeaderValue::from_str(&format!("attachment; filename=\"{name}\"")) {
        headers.insert(CONTENT_DISPOSITION, value);
    }
    if with_trailers {
        headers.insert(TRAILER, HeaderValue::from_static("x-workroom-entries, x-workroom-sha256"));
    }
    Ok(response)
}

fn media_type(format: ArchiveFormat) -> &'static str {
    match format {
        ArchiveFormat::TarZst => "application/zstd",
        ArchiveFormat::TarGz => "application/gzip",
        ArchiveFormat::Tar => "application/x-tar",
        ArchiveFormat::Zip => "application/zip",
    }
}

/// A name for who saves it: the last part of the path, in letters that every system takes.
fn file_name(path: &str, format: ArchiveFormat) -> String {
    let last = path.split('/').rfind(|part| !matches!(*part, "" | "." | "..")).unwrap_or("workspace");
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let suffix = match format {
        ArchiveFormat::TarZst => "tar.zst",
        ArchiveFormat::TarGz => "tar.gz",
        ArchiveFormat::Tar => "tar",
        ArchiveFormat::Zip => "zip",
    };
    format!("{}.{suffix}", last.chars().take(100).map(plain).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_a_name_that_every_system_takes() {
        assert_eq!(file_name("", ArchiveFormat::TarZst), "workspace.tar.zst");
        assert_eq!(file_name("/workspace/../a b\"\n/", ArchiveFormat::Zip), "a_b__.zip");
    }
}
