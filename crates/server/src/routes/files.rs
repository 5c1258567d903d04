//! `/v1/sessions/{id}/files`: the files of a session's room, one at a time.

use crate::call::Call;
use crate::download::{self, etags};
use crate::idempotency::{once, once_streamed};
use crate::openapi::{FileParams, RootParam, SessionPath, WriteParams};
use crate::reply::{Answer, Reply};
use axum::http::StatusCode;
use axum::http::header::{IF_MATCH, IF_NONE_MATCH};
use axum::response::IntoResponse;
use serde::Deserialize;
use workroom_engine::NewFile;
use workroom_types::{Deleted, FileContent, FileInfo, FileList, FilePath, ListFiles, Problem, ReadFile};

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WriteQuery {
    append: bool,
    mode: Option<String>,
    sync: bool,
    root: bool,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct DeleteQuery {
    recursive: bool,
    root: bool,
}

/// List a directory
///
/// A session without a room gets one by this, as by every call on its files.
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/files",
    tag = "files",
    operation_id = "list_files",
    params(SessionPath, ListFiles),
    responses(
        (status = 200, description = "Sorted by path", body = FileList),
        (status = 409, description = "The session is paused, or the path is no directory"),
        (status = 410, description = "The room ended meanwhile"),
        (status = 422, description = "A required layer cannot be had here"),
    ),
)]
pub(crate) async fn list(call: Call) -> Answer {
    let request = call.query::<ListFiles>()?;
    let list = call.engine().files(&call.caller, call.id()).list(request).await?;
    Ok(Reply::ok(&list)?.into_response())
}

/// Read a file
///
/// Its bytes, of any number, with `ETag`, `Last-Modified` and one `Range`. A client that sends `TE: trailers` is told
/// the file's SHA-256 in the trailer `x-workroom-sha256`. With `encoding` it is a part of the file as JSON. HEAD gives
/// the headers alone.
#[utoipa::path(
    get,
    path = "/v1/sessions/{id}/files/{path}",
    tag = "files",
    operation_id = "read_file",
    params(
        SessionPath,
        FileParams,
        ReadFile,
        ("Range" = Option<String>, Header, description = "One range of bytes; more than one are passed over."),
        ("If-None-Match" = Option<String>, Header, description = "Etags that the client has: 304 for the same."),
        ("If-Match" = Option<String>, Header, description = "The etag that the file must have."),
    ),
    responses(
        (status = 200, description = "What it holds", content(
            (Vec<u8> = "application/octet-stream"),
            (FileContent = "application/json"),
        )),
        (status = 206, description = "The range that was asked for", body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 304, description = "It is as the client has it"),
        (status = 409, description = "The session is paused, or the path is no file"),
        (status = 410, description = "The room ended meanwhile"),
        (status = 412, description = "It is not as `If-Match` has it"),
        (status = 413, description = "Too large for JSON: ask for a part, or for the bytes"),
        (status = 416, description = "There are no such bytes"),
        (status = 422, description = "A required layer cannot be had here"),
    ),
)]
pub(crate) async fn read(call: Call) -> Answer {
    let mut request = call.query::<ReadFile>()?;
    if !request.path.is_empty() {
        return Err(Problem::invalid(
            "`path` is in the query and in the path of the request",
            "name the file in the path of the request alone",
        )
        .into());
    }
    request.path = call.file_path();
    let files = call.engine().files(&call.caller, call.id());
    if request.encoding.is_some() {
        return Ok(Reply::ok(&files.read(request).await?)?.into_response());
    }
    let only_as_json = [request.offset, request.length, request.first_line, request.lines, request.limit];
    if only_as_json.iter().any(Option::is_some) {
        return Err(Problem::invalid(
            "a part of a file as JSON needs an encoding",
            "add `encoding=text` or `encoding=base64`, or ask for bytes with the header `Range`",
        )
        .into());
    }
    let (file, info) = files.open(FilePath { path: request.path, root: request.root }).await?;
    Ok(download::answer(call.headers(), file, &info)?)
}

/// Write a file
///
/// The body is the file, of any size, and is written as it comes. Nothing is changed until all of it is there.
/// Directories above it are made. `If-Match` writes only over the file that the caller knows, `If-None-Match: *` only
/// where there is none. An `Idempotency-Key` stands for the path, the query and the length of the body, not for its
/// bytes.
#[utoipa::path(
    put,
    path = "/v1/sessions/{id}/files/{path}",
    tag = "files",
    operation_id = "write_file",
    params(
        SessionPath,
        FileParams,
        WriteParams,
        ("If-Match" = Option<String>, Header, description = "The etag that the file must have; `*`: that there is one."),
        ("If-None-Match" = Option<String>, Header, pattern = r"^\*$", description = "`*`: that there is none."),
    ),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses(
        (status = 200, description = "Written over the one that was there", body = FileInfo),
        (status = 201, description = "Made", body = FileInfo),
        (status = 410, description = "The room ended meanwhile"),
        (status = 412, description = "It is not as `If-Match` or `If-None-Match` has it"),
    ),
)]
pub(crate) async fn write(mut call: Call) -> Answer {
    let query = call.query::<WriteQuery>()?;
    let new = NewFile {
        path: call.file_path(),
        root: query.root,
        append: query.append,
        mode: query.mode.as_deref().map(mode).transpose()?,
        if_match: if_match(&call)?,
        if_none: if_none(&call)?,
        sync: query.sync,
    };
    let id = call.id().to_owned();
    let mut source = call.source();
    once_streamed(call, move |engine, caller, permit| {
        Box::pin(async move {
            let written = match engine.files(caller, &id).write(new, &mut source, permit).await {
                Ok(written) => written,
                Err(problem) => {
                    source.pass_over().await;
                    return Err(problem);
                }
            };
            let status = if written.created { StatusCode::CREATED } else { StatusCode::OK };
            Reply::json(status, &written.info)
        })
    })
    .await
}

/// Permissions in octal; the bits that give a program another user are nobody's to set.
pub(crate) fn mode(text: &str) -> Result<u32, Problem> {
    let digits = (1..=4).contains(&text.len()) && text.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
    u32::from_str_radix(text, 8).ok().filter(|mode| digits && *mode <= 0o777).ok_or_else(|| {
        Problem::invalid(
            format!("mode={text} is not a file's permissions"),
            "write them in octal, such as 0644",
        )
    })
}

fn if_match(call: &Call) -> Result<Option<String>, Problem> {
    let mut given = etags(call.headers(), IF_MATCH);
    if given.len() > 1 {
        return Err(Problem::invalid("If-Match names several etags", "name the one that was read"));
    }
    Ok(given.pop())
}

fn if_none(call: &Call) -> Result<bool, Problem> {
    match etags(call.headers(), IF_NONE_MATCH).as_slice() {
        [] => Ok(false),
        [all] if all == "*" => Ok(true),
        _ => {
            Err(Problem::invalid("If-None-Match is not *", "to write, it can only say that there be none: *"))
        }
    }
}

/// Delete a file, or a directory with all that is in it
///
/// Deleting what is gone succeeds.
#[utoipa::path(
    delete,
    path = "/v1/sessions/{id}/files/{path}",
    tag = "files",
    operation_id = "delete_file",
    params(
        SessionPath,
        FileParams,
        ("recursive" = Option<bool>, Query, description = "Also a directory that is not empty."),
        RootParam,
    ),
    responses(
        (status = 200, description = "How many are gone", body = Deleted),
        (status = 410, description = "The room ended meanwhile"),
    ),
)]
pub(crate) async fn delete(call: Call) -> Answer {
    let DeleteQuery { recursive, root } = call.query()?;
    let request = FilePath { path: call.file_path(), root };
    let id = call.id().to_owned();
    once(call, &[], move |engine, caller, _| {
        Box::pin(async move { Reply::ok(&engine.files(caller, &id).delete(request, recursive).await?) })
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_are_octal_and_give_nobody_another_user() {
        assert_eq!(mode("0644").expect("a mode"), 0o644);
        assert_eq!(mode("755").expect("a mode"), 0o755);
        for wrong in ["", "8", "0o644", "4755", "+644", "07777", "00644", "rw"] {
            assert_eq!(mode(wrong).expect_err(wrong).status, 400);
        }
    }
}
