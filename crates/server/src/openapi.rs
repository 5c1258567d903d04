//! The OpenAPI document: put together from the handlers, then given what all of them have in common.

mod parameters;

pub(crate) use parameters::*;

use crate::schema_rules;
use axum::http::Method;
use serde_json::{Map, Value, json};
use utoipa::OpenApi;
use workroom_types::{BatchResult, ExecChunk, Problem, UsageSort, WatchEvent, WriteText};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Workroom",
        version = "1",
        description = "Durable sessions for AI agents: each with a private computer, a journal and files of its own.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    paths(
        crate::routes::sessions::create,
        crate::routes::sessions::list,
        crate::routes::sessions::resolve,
        crate::routes::sessions::show,
        crate::routes::sessions::update,
        crate::routes::sessions::delete,
        crate::routes::policy::show,
        crate::routes::policy::replace,
        crate::routes::policy::server,
        crate::routes::usage::of_session,
        crate::routes::usage::list,
        crate::routes::lifecycle::start,
        crate::routes::lifecycle::stop,
        crate::routes::lifecycle::pause,
        crate::routes::lifecycle::resume,
        crate::routes::exec::exec,
        crate::routes::processes::start,
        crate::routes::processes::list,
        crate::routes::processes::show,
        crate::routes::processes::remove,
        crate::routes::processes::output,
        crate::routes::processes::input,
        crate::routes::processes::signal,
        crate::routes::processes::resize,
        crate::routes::processes::wait,
        crate::routes::attach::attach,
        crate::routes::shells::create,
        crate::routes::shells::list,
        crate::routes::shells::show,
        crate::routes::shells::remove,
        crate::routes::shells::run,
        crate::routes::terminals::open,
        crate::routes::terminals::list,
        crate::routes::terminals::show,
        crate::routes::terminals::close,
        crate::routes::terminals::input,
        crate::routes::terminals::plain,
        crate::routes::terminals::screen,
        crate::routes::terminals::wait,
        crate::routes::terminals::resize,
        crate::routes::terminals::signal,
        crate::routes::recordings::list,
        crate::routes::recordings::read,
        crate::routes::recordings::delete,
        crate::routes::recordings::transcript,
        crate::routes::recordings::mark,
        crate::routes::mounts::offer,
        crate::routes::mounts::list,
        crate::routes::mounts::add,
        crate::routes::mounts::remove,
        crate::routes::network::show,
        crate::routes::network::propose,
        crate::routes::ports::list,
        crate::routes::ports::publish,
        crate::routes::ports::unpublish,
        crate::routes::ports::ticket,
        crate::routes::services::put,
        crate::routes::services::list,
        crate::routes::services::show,
        crate::routes::services::delete,
        crate::routes::services::start,
        crate::routes::services::stop,
        crate::routes::services::restart,
        crate::routes::services::logs,
        crate::routes::events::of_session,
        crate::routes::events::of_all,
        crate::routes::events::append,
        crate::routes::private::list,
        crate::routes::private::read,
        crate::routes::private::write,
        crate::routes::private::delete,
        crate::routes::past::take,
        crate::routes::past::list,
        crate::routes::past::delete,
        crate::routes::past::reset,
        crate::routes::past::baseline,
        crate::routes::past::fork,
        crate::routes::past::diff,
        crate::routes::past::merge,
        crate::routes::past::digest,
        crate::routes::past::lineage,
        crate::routes::past::collect_garbage,
        crate::routes::transfer::export,
        crate::routes::transfer::import,
        crate::routes::files::list,
        crate::routes::files::read,
        crate::routes::files::write,
        crate::routes::files::delete,
        crate::routes::upload::upload,
        crate::routes::file_verbs::stat,
        crate::routes::file_verbs::mkdir,
        crate::routes::file_verbs::rename,
        crate::routes::file_verbs::copy,
        crate::routes::file_verbs::edit,
        crate::routes::file_verbs::search,
        crate::routes::file_verbs::patch,
        crate::routes::file_verbs::usage,
        crate::routes::archive::import,
        crate::routes::archive::export,
        crate::routes::watch::watch,
        crate::routes::batch::batch,
        crate::routes::pools::set,
        crate::routes::pools::list,
        crate::routes::pools::show,
        crate::routes::pools::delete,
        crate::routes::pools::acquire,
        crate::routes::pools::release,
        crate::routes::pools::extend,
        crate::routes::pools::reset,
        crate::routes::secrets::set,
        crate::routes::secrets::list,
        crate::routes::secrets::remove,
        crate::routes::secrets::rotate,
        crate::routes::secrets::set_of_session,
        crate::routes::secrets::list_of_session,
        crate::routes::secrets::remove_of_session,
        crate::routes::tokens::create,
        crate::routes::tokens::list,
        crate::routes::tokens::revoke,
        crate::routes::meta::capabilities,
        crate::routes::meta::document,
        crate::routes::meta::healthy,
        crate::routes::meta::ready,
        crate::routes::meta::metrics,
    ),
    components(schemas(Problem, ExecChunk, WatchEvent, BatchResult, WriteText, UsageSort))
)]
struct Handlers;

/// The document as it is served and as `openapi/v1.json` has it.
pub fn openapi() -> String {
    Document::build().text()
}

pub(crate) struct Document(Value);

/// One method of one path, with every status that it may answer.
pub(crate) struct Operation {
    pub(crate) path: String,
    pub(crate) method: Method,
    pub(crate) statuses: Vec<u16>,
}

impl Document {
    pub(crate) fn build() -> Document {
        let mut root = serde_json::to_value(Handlers::openapi()).unwrap_or_default();
        if let Some(paths) = root["paths"].as_object_mut() {
            for (path, methods) in paths {
                for (method, operation) in methods.as_object_mut().into_iter().flatten() {
                    complete(path, method, operation);
                }
            }
        }
        root["security"] = json!([{"bearer": []}]);
        root["components"]["securitySchemes"] = json!({"bearer": {
            "type": "http",
            "scheme": "bearer",
            "description": "A token of `POST /v1/tokens`, or the first one, from the file `token` of the state directory. The unix socket needs none.",
        }});
        schema_rules::apply(&mut root["components"]["schemas"]);
        if let Some(items) =
            root.pointer_mut("/paths/~1v1~1batch/post/requestBody/content/application~1json/schema")
        {
            items["minItems"] = json!(1);
            items["maxItems"] = json!(crate::routes::batch::MOST_ITEMS);
        }
        Document(root)
    }

    pub(crate) fn text(&self) -> String {
        // Objects are kept sorted by name, so the text is the same every time.
        let mut text = serde_json::to_string_pretty(&self.0).unwrap_or_default();
        text.push('\n');
        text
    }

    pub(crate) fn operations(&self) -> Vec<Operation> {
        let none = Map::new();
        let paths = self.0["paths"].as_object().unwrap_or(&none);
        let mut operations = Vec::new();
        for (path, methods) in paths {
            for (method, operation) in methods.as_object().unwrap_or(&none) {
                let statuses = operation["responses"].as_object().unwrap_or(&none);
                operations.push(Operation {
                    path: path.clone(),
                    method: Method::from_bytes(method.to_uppercase().as_bytes()).unwrap_or(Method::GET),
                    statuses: statuses.keys().filter_map(|status| status.parse().ok()).collect(),
                });
            }
        }
        operations
    }
}

/// Bodies that are bytes and not JSON.
const OF_BYTES: [&str; 5] = [
    "application/octet-stream",
    "application/zstd",
    "application/gzip",
    "application/x-tar",
    "application/zip",
];

/// Which of those that are no GET remember nothing under a key: what only reads is read again, and of a secret no hash
/// is kept.
const WITHOUT_KEY: [&str; 6] =
    ["disk_use", "search_files", "set_secret", "set_session_secret", "stat_file", "wait_for_terminal"];

/// Adds what the gate, the body's reader and the idempotency key may answer, and gives every problem its schema.
fn complete(path: &str, method: &str, operation: &mut Value) {
    // A body that may be left out is not one that may be `null`.
    let schema = operation.pointer_mut("/requestBody/content/application~1json/schema");
    if let Some(schema) = schema
        && let Some(reference) = schema.pointer("/oneOf/0/$ref").cloned()
    {
        *schema = json!({"$ref": reference});
        operation["requestBody"]["required"] = json!(false);
    }
    for place in ["/requestBody", "/responses/200", "/responses/206"] {
        for (media_type, content) in operation
            .pointer_mut(&format!("{place}/content"))
            .and_then(Value::as_object_mut)
            .into_iter()
            .flatten()
        {
            if OF_BYTES.contains(&media_type.as_str()) {
                content["schema"] = json!({"type": "string", "format": "binary"});
            }
        }
    }
    let open = operation["security"].as_array().is_some_and(|it| it.iter().any(|one| one == &json!({})));
    let body_types = operation["requestBody"]["content"].as_object();
    let takes_json = body_types.is_some_and(|types| types.contains_key("application/json"));
    let takes_body = body_types.is_some();
    let changes = method != "get";
    let mut also: Vec<(&str, &str)> = vec![
        ("400", "The request makes no sense as it is"),
        ("403", "Not allowed for this token, host or origin"),
        ("500", "A fault of the server"),
    ];
    if !open {
        also.push(("401", "No token, or none that is known"));
        also.push(("429", "A limit is reached; `limit` names it and Retry-After says when to come back"));
        also.push(("503", "The disk is full or failing, or the server is ending; nothing was changed"));
    }
    if path.contains('{') {
        also.push(("404", "There is no such thing that this token may see"));
    }
    if changes {
        also.push((
            "409",
            "Not possible in the state that it is in, or the outcome of an earlier try is unknown",
        ));
        also.push((
            "422",
            "The same Idempotency-Key came with another request, or a required layer cannot be had here",
        ));
    }
    // A body that is to say nothing is read all the same.
    if takes_body || method == "post" {
        also.push(("413", "The body is too large"));
    }
    if takes_json {
        also.push(("415", "The body is not application/json"));
    }
    for (status, description) in also {
        let response = &mut operation["responses"][status];
        if response.is_null() {
            *response = json!({"description": description});
        }
    }
    for (status, response) in operation["responses"].as_object_mut().into_iter().flatten() {
        if !status.starts_with('2') && !matches!(status.as_str(), "101" | "304") {
            response["content"] =
                json!({"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}});
        }
        if matches!(status.as_str(), "429" | "503") {
            response["headers"] = json!({"Retry-After": {"description": "Seconds", "schema": {"type": "integer", "minimum": 0}}});
        }
    }
    if changes && !WITHOUT_KEY.iter().any(|id| operation["operationId"] == *id) {
        add_parameter(
            operation,
            json!({
                "name": "Idempotency-Key",
                "in": "header",
                "required": false,
                "description": "Under the same key the same request is done once, however often it comes, for at least a day.",
                "schema": {"type": "string", "pattern": "^[!-~]{1,256}$", "minLength": 1, "maxLength": 256},
            }),
        );
    }
    if operation["parameters"].as_array().is_some_and(|all| all.iter().any(|one| one["name"] == "after")) {
        add_parameter(
            operation,
            json!({
                "name": "Last-Event-ID",
                "in": "header",
                "required": false,
                "description": "The id of the last event that was read; goes before `after`.",
                "schema": {"type": "integer", "format": "int64", "minimum": 0, "maximum": i64::MAX},
            }),
        );
    }
}

fn add_parameter(operation: &mut Value, parameter: Value) {
    match operation["parameters"].as_array_mut() {
        Some(parameters) => parameters.push(parameter),
        None => operation["parameters"] = json!([parameter]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_declares_what_all_may_answer() {
        let operations = Document::build().operations();
        assert!(operations.len() >= 27, "{}", operations.len());
        for operation in operations {
            for status in [400, 403, 500] {
                assert!(operation.statuses.contains(&status), "{} {}", operation.method, operation.path);
            }
            assert!(operation.statuses.iter().any(|status| *status < 300), "{}", operation.path);
        }
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let Document(root) = Document::build();
        let text = root.to_string();
        for reference in text.split("\"$ref\":\"#").skip(1) {
            let pointer = reference.split('"').next().unwrap_or_default();
            assert!(root.pointer(pointer).is_some(), "{pointer}");
        }
    }
}
