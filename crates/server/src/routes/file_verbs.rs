//! `/v1/sessions/{id}/files/{stat,mkdir,move,copy,edit,search,patch,usage}`: what is done to files, said in JSON.

use crate::call::Call;
use crate::idempotency::once;
use crate::openapi::SessionPath;
use crate::reply::{Answer, Reply};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use workroom_types::{
    ApplyPatch, DiskUse, EditFile, Edited, FileInfo, FilePath, MakeDirectory, Patched, SearchFiles,
    SearchResult, Transfer,
};

/// Show what a path names
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/files/stat",
    tag = "files",
    operation_id = "stat_file",
    params(SessionPath),
    request_body(content = FilePath, example = json!({"path": "src/main.rs"})),
    responses(
        (status = 200, description = "As it is now", body = FileInfo),
        (status = 410, description = "The room ended meanwhile"),
    ),
)]
pub(crate) async fn stat(mut call: Call) -> Answer {
    call.no_query()?;
    let limit = call.app.config.body.json;
    let (request, _) = call.json::<FilePath>(limit).await?;
    let info = call.engine().files(&call.caller, call.id()).stat(request).await?;
    Ok(Reply::ok(&info)?.into_response())
}

/// Make a directory
///
/// One that is there already is fine, unless `parents` is false.
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/files/mkdir",
    tag = "files",
    operation_id = "make_directory",
    params(SessionPath),
    request_body(content = MakeDirectory, example = json!({"path": "build/out"})),
    responses(
        (status = 201, description = "It is there", body = FileInfo),
        (status = 410, description = "The room ended meanwhile"),
    ),
)]
pub(crate) async fn mkdir(mut call: Call) -> Answer {
    call.no_query()?;
    let limit = call.app.config.body.json;
    let (request, body) = call.json::<MakeDirectory>(limit).await?;
    let id = call.id().to_owned();
    once(call, &body, move |engine, caller, _| {
        Box::pin(async move {
            Reply::json(StatusCode::CREATED, &engine.files(caller, &id).make_directory(request).await?)
        })
    })
    .await
}

/// Move a file or a directory
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/files/move",
    tag = "files",
    operation_id = "move_file",
    params(SessionPath),
    request_body(content = Transfer, example = json!({"from": "draft.md", "to": "docs/final.md"})),
    responses(
        (status = 200, description = "Where it is now", body = FileInfo),
        (status = 410, description = "The room ended meanwhile"),
    ),
)]
pub(crate) async fn rename(mut call: Call) -> Answer {
    call.no_query()?;
    let limit = call.app.config.body.json;
    let (request, body) = call.json::<Transfer>(limit).await?;
    let id = call.id().to_owned();
    once(call, &body, move |engine, caller, permit| {
        Box::pin(async move { Reply::ok(&engine.files(caller, &id).rename(request, permit).await?) })
    })
    .await
}

/// Copy a file, or a directory with all that is in it
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/files/copy",
    tag = "files",
    operation_id = "copy_file",
    params(SessionPath),
    request_body(content = Transfer, example = json!({"from": "template", "to": "work"})),
    responses(
        (status = 200, description = "The copy", body = FileInfo),
        (status = 410, description = "The room ended meanwhile"),
    ),
)]
pub(crate) async fn copy(mut call: Call) -> Answer {
    call.no_query()?;
    let limit = call.app.config.body.json;
    let (request, body) = call.json::<Transfer>(limit).await?;
    let id = call.id().to_owned();
    once(call, &body, move |engine, caller, permit| {
        Box::pin(async move { Reply::ok(&engine.files(caller, &id).copy(request, permit).await?) })
    })
    .await
}

/// Replace text in a file
///
/// What is to be replaced must be there exactly once, unless `all`: an edit never hits another place than was meant.
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/files/edit",
    tag = "files",
    operation_id = "edit_file",
    params(SessionPath),
    request_body(content = EditFile, example = json!({"path": "main.py", "old": "x = 1", "new": "x = 2"})),
    responses(
        (status = 200, description = "What became of it", body = Edited),
        (status = 410, description = "The room ended meanwhile"),
        (status = 412, description = "It is not as `if_match` has it"),
    ),
)]
pub(crate) async fn edit(mut call: Call) -> Answer {
    call.no_query()?;
    let limit = call.app.config.body.json;
    let (request, body) = call.json::<EditFile>(limit).await?;
    let id = call.id().to_owned();
    once(call, &body, move |engine, caller, permit| {
        Box::pin(async move { Reply::ok(&engine.files(caller, &id).edit(request, permit).await?) })
    })
    .await
}

/// Search in files
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/files/search",
    tag = "files",
    operation_id = "search_files",
    params(SessionPath),
    request_body(content = SearchFiles, example = json!({"pattern": "TODO", "globs": ["*.rs"], "context": 2})),
    responses(
        (status = 200, description = "Where it is", body = SearchResult),
        (status = 410, description = "The room ended meanwhile"),
    ),
)]
pub(crate) async fn search(mut call: Call) -> Answer {
    call.no_query()?;
    let limit = call.app.config.body.json;
    let (request, _) = call.json::<SearchFiles>(limit).await?;
    let found = call.engine().files(&call.caller, call.id()).search(request).await?;
    Ok(Reply::ok(&found)?.into_response())
}

/// Apply a patch
///
/// A unified diff of one or more files: all of it, or, where a hunk has no place, nothing. `report` then says which, and
/// where it nearly has one.
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/files/patch",
    tag = "files",
    operation_id = "patch_files",
    params(SessionPath),
    request_body(content = ApplyPatch, example = json!({"patch": "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new\n"})),
    responses(
        (status = 200, description = "What it changed, or with `dry_run` would", body = Patched),
        (status = 410, description = "The room ended meanwhile"),
    ),
)]
pub(crate) async fn patch(mut call: Call) -> Answer {
    call.no_query()?;
    let limit = call.app.config.body.json;
    let (request, body) = call.json::<ApplyPatch>(limit).await?;
    let id = call.id().to_owned();
    once(call, &body, move |engine, caller, permit| {
        Box::pin(async move { Reply::ok(&engine.files(caller, &id).patch(request, permit).await?) })
    })
    .await
}

/// Measure what is below a path
#[utoipa::path(
    post,
    path = "/v1/sessions/{id}/files/usage",
    tag = "files",
    operation_id = "disk_use",
    params(SessionPath),
    request_body(content = FilePath, example = json!({"path": ""})),
    responses(
        (status = 200, description = "How much and how many", body = DiskUse),
        (status = 410, description = "The room ended meanwhile"),
    ),
)]
pub(crate) async fn usage(mut call: Call) -> Answer {
    call.no_query()?;
    let limit = call.app.config.body.json;
    let (request, _) = call.json::<FilePath>(limit).await?;
    let used = call.engine().files(&call.caller, call.id()).disk_use(request).await?;
    Ok(Reply::ok(&used)?.into_response())
}
