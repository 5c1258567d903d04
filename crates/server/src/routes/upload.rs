//! `POST /v1/sessions/{id}/files`: several files in one request.

use crate::body::BodySource;
use crate::call::Call;
use crate::idempotency::once_streamed;
use crate::multipart::{Multipart, Part, boundary};
use crate::openapi::{SessionPath, UploadParams};
use crate::reply::{Answer, Reply};
use axum::http::StatusCode;
use serde::Deserialize;
use workroom_engine::{Files, NewFile};
use workroom_types::{Problem, ProblemCode, RoomPath, Uploaded, UploadedFiles};

/// Files of one request.
const MOST: usize = 10_000;

/// Names of form fields that say nothing about where a file is to go.
const NAMELESS: [&str; 4] = ["file", "files", "file[]", "files[]"];

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct UploadQuery {
    path: String,
    root: bool,
}

/// Write several files
///
/// A form in which every part is a file. A field's name is the path that its file is written to; in fields that are
/// called `file` or `files` it is the name of the file. One that cannot be written does not keep the others from their
/// turn.
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/files",
    tag = "files",
    operation_id = "upload_files",
    params(SessionPath, UploadParams),
    request_body(content = Object, content_type = "multipart/form-data"),
    responses(
        (status = 200, description = "All are written", body = UploadedFiles),
        (status = 207, description = "Some are not: `error` says why", body = UploadedFiles),
        (status = 410, description = "The room ended meanwhile"),
        (status = 415, description = "The body is no multipart/form-data"),
    ),
)]
pub(crate) async fn upload(mut call: Call) -> Answer {
    let query = call.query::<UploadQuery>()?;
    let boundary = boundary(call.headers())?;
    let mut form = Multipart::new(call.source(), &boundary);
    let id = call.id().to_owned();
    once_streamed(call, move |engine, caller, _| {
        Box::pin(async move {
            let mut uploaded = UploadedFiles { files: Vec::new() };
            let outcome = take_all(&engine.files(caller, &id), &mut form, &query, &mut uploaded).await;
            if let Err(mut problem) = outcome {
                // What was written before stays written, and is told.
                problem.report = serde_json::to_value(&uploaded).ok();
                return Err(problem);
            }
            let all_well = uploaded.files.iter().all(|file| file.error.is_none());
            Reply::json(if all_well { StatusCode::OK } else { StatusCode::MULTI_STATUS }, &uploaded)
        })
    })
    .await
}

async fn take_all(
    files: &Files<'_>,
    form: &mut Multipart<BodySource>,
    query: &UploadQuery,
    uploaded: &mut UploadedFiles,
) -> Result<(), Problem> {
    while let Some(part) = form.next_part().await? {
        if uploaded.files.len() == MOST {
            return Err(Problem::invalid(format!("there are more than {MOST} files"), "send an archive"));
        }
        files.check_count(uploaded.files.len() as u64 + 1).await?;
        let path = target(&query.path, part);
        let written = match stays_below(&query.path, &path) {
            Ok(()) => {
                let new = NewFile { path: path.clone(), root: query.root, ..NewFile::default() };
                files.write(new, &mut &mut *form, None).await
            }
            Err(problem) => Err(problem),
        };
        let (file, error) = match written {
            Ok(written) => (Some(written.info), None),
            // Of the session, and not of this file: the others would fare no better.
            Err(problem) if problem.status >= 500 || matches!(problem.status, 410 | 429) => {
                return Err(problem);
            }
            Err(problem) => (None, Some(problem)),
        };
        uploaded.files.push(Uploaded { path, file, error });
    }
    Ok(())
}

/// Where a part's file goes.
fn target(directory: &str, part: Part) -> String {
    let name = match part.filename {
        Some(filename) if NAMELESS.contains(&part.name.as_str()) => filename,
        _ => part.name,
    };
    if directory.is_empty() { name } else { format!("{}/{name}", directory.trim_end_matches('/')) }
}

/// A file's name says where below the directory it goes, and not where else.
fn stays_below(directory: &str, path: &str) -> Result<(), Problem> {
    let name = path.strip_prefix(directory).unwrap_or(path);
    RoomPath::parse(name, true).map(drop).map_err(|problem| match problem.code {
        ProblemCode::PathOutsideWorkspace => Problem::new(
            ProblemCode::PathOutsideWorkspace,
            format!("the file \"{path}\" would not be in the directory that it is for"),
            "leave `..` out of its name",
        ),
        _ => problem,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_or_a_file_says_where_it_goes() {
        let part = |name: &str, filename: Option<&str>| Part {
            name: name.into(),
            filename: filename.map(str::to_owned),
        };
        assert_eq!(target("", part("src/a.rs", Some("a.rs"))), "src/a.rs");
        assert_eq!(target("", part("file", Some("a.rs"))), "a.rs");
        assert_eq!(target("", part("file", None)), "file");
        assert_eq!(target("in/", part("files", Some("a.rs"))), "in/a.rs");
        assert_eq!(target("/workspace", part("x", None)), "/workspace/x");
        assert!(stays_below("in", "in/a/../b").is_ok() && stays_below("", "a").is_ok());
        for outside in [("in", "in/../x"), ("", "../x"), ("a/b", "a/b/../../x")] {
            assert!(stays_below(outside.0, outside.1).is_err(), "{outside:?}");
        }
    }
}
