//! One item of a batch: its arguments read as its route reads them, the engine asked, the answer as the route's.

use crate::body::BodySource;
use crate::routes::files::mode;
use crate::routes::processes::wait_of;
use crate::routes::terminals::{INPUT_PATIENCE, screen_query};
use axum::body::Body;
use base64::Engine as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::time::Duration;
use workroom_engine::{Engine, NewFile};
use workroom_types::{
    ApplyPatch, BatchItem, BatchResult, BatchTool, Caller, EditFile, Encoding, ExecRequest, ListFiles,
    Problem, ReadFile, ReleaseSlot, RunInShell, SearchFiles, TerminalInput, WriteText,
};

/// What does not say for how long it may be waited for.
const USUAL_TIMEOUT: Duration = Duration::from_secs(300);

/// A longer one is a mistake.
const LONGEST_TIMEOUT_MS: u64 = 24 * 3600 * 1000;

/// A status and the value that goes with it.
type Done = (u16, Value);

pub(crate) fn check(items: &[Value], most: usize) -> Result<(), Problem> {
    if items.is_empty() || items.len() > most {
        return Err(Problem::invalid(
            format!("a batch of {} items is none of 1 to {most}", items.len()),
            "send several batches",
        ));
    }
    Ok(())
}

/// Does one item. What is wrong with it, or goes wrong, is its own.
pub(crate) async fn perform(engine: Engine, caller: Caller, index: u32, item: Value) -> BatchResult {
    let id = item.get("id").and_then(Value::as_str).map(str::to_owned);
    let done = match item_of(item) {
        Ok(item) => one(&engine, &caller, item).await,
        Err(problem) => Err(problem),
    };
    match done {
        Ok((status, result)) => {
            BatchResult { index, id, ok: true, status, result: Some(result), problem: None }
        }
        Err(problem) => {
            let status = problem.status;
            BatchResult { index, id, ok: false, status, result: None, problem: Some(problem) }
        }
    }
}

fn item_of(item: Value) -> Result<BatchItem, Problem> {
    let unfit = |why: &str| {
        Problem::invalid(
            format!("the item is not what a batch takes: {why}"),
            "GET /v1/openapi.json describes BatchItem",
        )
    };
    // A list would be read as an object's values in their order, which nobody means.
    if !item.is_object() {
        return Err(unfit("it is no object"));
    }
    let item: BatchItem = serde_json::from_value(item).map_err(|error| unfit(&error.to_string()))?;
    if let Some(timeout) = item.timeout_ms.filter(|timeout| !(1..=LONGEST_TIMEOUT_MS).contains(timeout)) {
        return Err(unfit(&format!("timeout_ms {timeout} is outside 1 to {LONGEST_TIMEOUT_MS}")));
    }
    Ok(item)
}

async fn one(engine: &Engine, caller: &Caller, mut item: BatchItem) -> Result<Done, Problem> {
    let session = match (item.session.take(), item.slot.take()) {
        (Some(session), None) => session,
        (None, Some(slot)) => {
            let request = ReleaseSlot { trajectory: slot.trajectory };
            engine.lease_of(caller, (slot.owner.as_deref(), &slot.pool), request).await?.session
        }
        _ => {
            return Err(Problem::invalid(
                "an item names a session or a slot, and one of the two",
                "give `session`, or `slot` with pool and trajectory",
            ));
        }
    };
    let has_own_time = matches!(item.tool, BatchTool::Exec | BatchTool::Shell);
    if has_own_time {
        if let Some(timeout) = item.timeout_ms {
            item.args.entry("timeout_ms").or_insert_with(|| timeout.into());
        }
        return ask(engine, caller, &session, item.tool, item.args).await;
    }
    let timeout = item.timeout_ms.map_or(USUAL_TIMEOUT, Duration::from_millis);
    let tool = item.tool;
    match tokio::time::timeout(timeout, ask(engine, caller, &session, tool, item.args)).await {
        Ok(done) => done,
        Err(_) => Err(Problem::limit(
            "timeout_ms",
            format!("{} was not done within {} ms", tool.as_str(), timeout.as_millis()),
            "it may be done by now: look; or allow more time",
        )),
    }
}

async fn ask(
    engine: &Engine,
    caller: &Caller,
    session: &str,
    tool: BatchTool,
    mut args: Map<String, Value>,
) -> Result<Done, Problem> {
    let files = || engine.files(caller, session);
    match tool {
        BatchTool::Exec => {
            let request: ExecRequest = read(tool, args)?;
            done(200, &engine.exec(caller, session, request, None).await?)
        }
        BatchTool::Shell => {
            let shell: String = field(tool, &mut args, "shell")?.unwrap_or_else(|| "default".into());
            let request: RunInShell = read(tool, args)?;
            done(200, &engine.run_in_shell(caller, session, &shell, request, None).await?)
        }
        BatchTool::Read => {
            let mut request: ReadFile = read(tool, args)?;
            request.encoding = request.encoding.or(Some(Encoding::Text));
            done(200, &files().read(request).await?)
        }
        BatchTool::Write => {
            let (new, content) = new_file(read(tool, args)?)?;
            let mut source = BodySource::new(Body::from(content));
            let written = files().write(new, &mut source, None).await?;
            done(if written.created { 201 } else { 200 }, &written.info)
        }
        BatchTool::List => done(200, &files().list(read::<ListFiles>(tool, args)?).await?),
        BatchTool::Edit => done(200, &files().edit(read::<EditFile>(tool, args)?, None).await?),
        BatchTool::Patch => done(200, &files().patch(read::<ApplyPatch>(tool, args)?, None).await?),
        BatchTool::Search => done(200, &files().search(read::<SearchFiles>(tool, args)?).await?),
        BatchTool::Keys => {
            let terminal = needed(tool, &mut args, "terminal")?;
            let wait = field(tool, &mut args, "wait_ms")?.map_or(Ok(INPUT_PATIENCE), wait_of)?;
            let request: TerminalInput = read(tool, args)?;
            let terminal = engine.terminal(caller, session, &terminal).await?;
            done(200, &terminal.input(request, wait).await?)
        }
        BatchTool::Screen => {
            let terminal = needed(tool, &mut args, "terminal")?;
            let query = screen_query(&read(tool, args)?)?;
            let terminal = engine.terminal(caller, session, &terminal).await?;
            done(200, &terminal.screen(query).await?)
        }
    }
}

fn done(status: u16, value: &impl Serialize) -> Result<Done, Problem> {
    serde_json::to_value(value).map(|value| (status, value)).map_err(|error| {
        let what = format!("the answer cannot be written as JSON: {error}");
        Problem::new(workroom_types::ProblemCode::Internal, what, "")
    })
}

fn read<T: DeserializeOwned>(tool: BatchTool, args: Map<String, Value>) -> Result<T, Problem> {
    serde_json::from_value(Value::Object(args)).map_err(|error| wrong(tool, &error.to_string()))
}

/// What the route has in its path or its query, and not in its body.
fn field<T: DeserializeOwned>(
    tool: BatchTool,
    args: &mut Map<String, Value>,
    name: &str,
) -> Result<Option<T>, Problem> {
    match args.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => {
            serde_json::from_value(value).map(Some).map_err(|error| wrong(tool, &format!("{name}: {error}")))
        }
    }
}

fn needed(tool: BatchTool, args: &mut Map<String, Value>, name: &str) -> Result<String, Problem> {
    field(tool, args, name)?.ok_or_else(|| wrong(tool, &format!("missing field `{name}`")))
}

fn wrong(tool: BatchTool, why: &str) -> Problem {
    Problem::invalid(
        format!("args are not what {} takes: {why}", tool.as_str()),
        "GET /v1/openapi.json describes BatchTool, and the body of each route",
    )
}

fn new_file(file: WriteText) -> Result<(NewFile, Vec<u8>), Problem> {
    let content = match file.encoding {
        Encoding::Text => file.content.into_bytes(),
        Encoding::Base64 => base64::engine::general_purpose::STANDARD
            .decode(&file.content)
            .map_err(|error| wrong(BatchTool::Write, &format!("content is not base64: {error}")))?,
    };
    let new = NewFile {
        path: file.path,
        root: file.root,
        append: file.append,
        mode: file.mode.as_deref().map(mode).transpose()?,
        if_match: file.if_match,
        if_none: file.if_none,
        sync: file.sync,
    };
    Ok((new, content))
}
