//! What the document says about values beyond their types: lengths, alphabets, ranges.
//!
//! The engine refuses what breaks these rules; here they are told, so that a client can know before it asks.

use serde_json::{Value, json};
use workroom_engine::SIGNALS;
use workroom_types::Layer;

/// Names and labels: nothing that would break a table or a terminal.
const NO_CONTROL: &str = "^[^\\u0000-\\u001f\\u007f-\\u009f]*$";
/// Text that others make, or that becomes an argument: anything but what would end it early.
const NO_NUL: &str = "^[^\\u0000]*$";
/// The name of a snapshot, or of a moment that needs none.
const SNAPSHOT: &str = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$";
/// A hundred years.
const LONGEST_SECONDS: u64 = 3_155_760_000;
/// Milliseconds: a day.
const LONGEST_MS: u64 = 24 * 3600 * 1000;
/// What a JSON number carries exactly everywhere.
const LARGEST_EXACT: u64 = (1 << 53) - 1;

/// The names and values of variables.
fn environment() -> Value {
    json!({
        "propertyNames": {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]{0,63}$"},
        "additionalProperties": {"type": "string", "pattern": NO_NUL},
    })
}

/// By schema and property, what is added to what the type says.
fn rules() -> Vec<(&'static str, &'static str, Value)> {
    let foreign = json!({"minLength": 1, "maxLength": 256, "pattern": NO_NUL});
    let name = json!({"maxLength": 120, "pattern": NO_CONTROL});
    let labels = json!({
        "maxProperties": 64,
        "propertyNames": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"},
        "additionalProperties": {"type": "string", "maxLength": 120, "pattern": NO_CONTROL},
    });
    let seconds = |least: u64| json!({"minimum": least, "maximum": LONGEST_SECONDS});
    let up_to = |most: u64| json!({"minimum": 1, "maximum": most});
    let layers = json!({"items": {"type": "string", "enum": Layer::ALL.map(Layer::name).to_vec()}});
    let mut rules = vec![
        ("CreateSession", "name", name.clone()),
        ("CreateSession", "labels", labels.clone()),
        ("CreateSession", "template", json!({"enum": ["host", null]})),
        ("CreateSession", "ttl", seconds(1)),
        ("CreateSession", "idle_timeout", seconds(1)),
        ("UpdateSession", "name", name.clone()),
        ("UpdateSession", "labels", labels),
        ("UpdateSession", "ttl", seconds(0)),
        ("UpdateSession", "idle_timeout", seconds(0)),
        ("Policy", "memory", json!({"minimum": 8 << 20, "maximum": LARGEST_EXACT})),
        ("Policy", "pids", up_to(4 << 20)),
        ("Policy", "cpus_milli", json!({"minimum": 10, "maximum": 1_000_000})),
        ("Policy", "open_files", json!({"minimum": 16, "maximum": 1 << 20})),
        ("Policy", "disk", json!({"minimum": 1 << 20, "maximum": 1u64 << 50})),
        ("Policy", "inodes", json!({"minimum": 64, "maximum": 1u64 << 40})),
        ("Policy", "shm", json!({"minimum": 4096, "maximum": 1u64 << 50})),
        ("Policy", "require", layers.clone()),
        ("Policy", "allow_missing", layers),
        ("ExecRequest", "command", json!({"pattern": NO_NUL})),
        ("ExecRequest", "argv", json!({"minItems": 1, "items": {"type": "string", "pattern": NO_NUL}})),
        ("ExecRequest", "cwd", json!({"maxLength": 4096, "pattern": "^/[^\\u0000]*$"})),
        ("ExecRequest", "user", json!({"enum": ["root", "agent", null]})),
        ("ExecRequest", "timeout_ms", up_to(LARGEST_EXACT)),
        ("ExecRequest", "max_output", json!({"minimum": 0, "maximum": LARGEST_EXACT})),
        (
            "ExecRequest",
            "env",
            json!({
                "propertyNames": {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]{0,63}$"},
                "additionalProperties": {"type": "string", "pattern": NO_NUL},
            }),
        ),
        ("CreateShell", "name", json!({"pattern": "^[a-z0-9-]{1,64}$", "maxLength": 64})),
        ("CreateShell", "cwd", json!({"maxLength": 4096, "pattern": "^/[^\\u0000]*$"})),
        ("CreateShell", "user", json!({"enum": ["root", "agent", null]})),
        (
            "CreateShell",
            "env",
            json!({
                "propertyNames": {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]{0,63}$"},
                "additionalProperties": {"type": "string", "pattern": NO_NUL},
            }),
        ),
        ("RunInShell", "command", json!({"pattern": NO_NUL})),
        ("RunInShell", "timeout_ms", up_to(LARGEST_EXACT)),
        ("RunInShell", "max_output", json!({"minimum": 0, "maximum": LARGEST_EXACT})),
        (
            "AppendEvent",
            "kind",
            json!({"pattern": "^[a-z0-9][a-z0-9._-]{0,63}$", "minLength": 1, "maxLength": 64}),
        ),
        ("AddMarker", "label", json!({"maxLength": 250})),
        ("TakeSnapshot", "name", json!({"pattern": SNAPSHOT, "maxLength": 64})),
        ("ResetSession", "to", json!({"pattern": SNAPSHOT, "maxLength": 64})),
        ("ForkSession", "count", up_to(100)),
        // With more than one fork, a number follows it.
        ("ForkSession", "name", json!({"maxLength": 116, "pattern": NO_CONTROL})),
        ("ForkSession", "from", json!({"pattern": SNAPSHOT, "maxLength": 64})),
        ("MergeSession", "from", json!({"pattern": "^[a-z0-9-]{1,64}$"})),
        ("OpenTerminal", "cols", json!({"minimum": 20, "maximum": 500})),
        ("OpenTerminal", "rows", json!({"minimum": 10, "maximum": 200})),
        ("OpenTerminal", "cwd", json!({"maxLength": 4096, "pattern": "^/[^\\u0000]*$"})),
        ("OpenTerminal", "user", json!({"enum": ["root", "agent", null]})),
        ("OpenTerminal", "name", json!({"pattern": SNAPSHOT, "minLength": 1, "maxLength": 64})),
        ("OpenTerminal", "keep_output", json!({"minimum": 4096, "maximum": 1 << 30})),
        ("OpenTerminal", "env", environment()),
        ("WaitForTerminal", "idle_ms", json!({"minimum": 0, "maximum": 86_400_000})),
        ("WaitForTerminal", "timeout_ms", json!({"minimum": 0, "maximum": 86_400_000})),
        ("WaitForTerminal", "text", json!({"minLength": 1, "maxLength": 1024})),
        ("WaitForTerminal", "regex", json!({"minLength": 1, "maxLength": 1024})),
        ("PublishPort", "port", json!({"minimum": 1, "maximum": 65535})),
        ("PublishPort", "host_port", json!({"minimum": 1025, "maximum": 65535})),
        ("PublishPort", "name", name.clone()),
        ("MountPolicy", "dynamic", json!({"maxItems": 32})),
        ("MountPolicy", "unprotect", json!({"maxItems": 32})),
        ("AddMounts", "mounts", json!({"minItems": 1, "maxItems": 32})),
        (
            "MountRequest",
            "alias",
            json!({"pattern": "^[A-Za-z0-9._-]{1,64}$", "minLength": 1, "maxLength": 64}),
        ),
        (
            "MountRequest",
            "base",
            json!({"pattern": "^[A-Za-z0-9._-]{1,64}$", "minLength": 1, "maxLength": 64}),
        ),
        ("MountRequest", "subpath", json!({"maxLength": 4096, "pattern": NO_CONTROL})),
        ("StartProcess", "command", json!({"pattern": NO_NUL})),
        ("StartProcess", "argv", json!({"minItems": 1, "items": {"type": "string", "pattern": NO_NUL}})),
        ("StartProcess", "cwd", json!({"maxLength": 4096, "pattern": "^/[^\\u0000]*$"})),
        ("StartProcess", "user", json!({"enum": ["root", "agent", null]})),
        ("StartProcess", "env", environment()),
        ("StartProcess", "tag", json!({"maxLength": 30, "pattern": NO_CONTROL})),
        ("StartProcess", "timeout_ms", up_to(LONGEST_MS)),
        ("StartProcess", "keep_output", json!({"minimum": 4096, "maximum": 1 << 30})),
        ("PtySize", "cols", json!({"minimum": 20, "maximum": 500})),
        ("PtySize", "rows", json!({"minimum": 10, "maximum": 200})),
        ("SendSignal", "signal", json!({"enum": SIGNALS.map(|(name, _)| name)})),
        ("ServiceSpec", "command", json!({"pattern": NO_NUL})),
        ("ServiceSpec", "argv", json!({"minItems": 1, "items": {"type": "string", "pattern": NO_NUL}})),
        ("ServiceSpec", "cwd", json!({"maxLength": 4096, "pattern": "^/[^\\u0000]*$"})),
        ("ServiceSpec", "user", json!({"enum": ["root", "agent", null]})),
        ("ServiceSpec", "env", environment()),
        (
            "ServiceSpec",
            "depends_on",
            json!({"maxItems": 64, "items": {"type": "string", "pattern": SNAPSHOT, "maxLength": 64}}),
        ),
        ("ServiceSpec", "ready_timeout_ms", up_to(LONGEST_MS)),
        ("ServiceSpec", "ready_interval_ms", json!({"minimum": 10, "maximum": LONGEST_MS})),
        ("ServiceSpec", "stop_timeout_ms", json!({"minimum": 0, "maximum": LONGEST_MS})),
        ("ServiceSpec", "keep_output", json!({"minimum": 4096, "maximum": 1 << 30})),
        ("HttpReadiness", "port", up_to(65535)),
        ("HttpReadiness", "path", json!({"pattern": "^/[!-\"$-~]*$", "maxLength": 2048})),
        ("Backoff", "initial_ms", up_to(LONGEST_MS)),
        ("Backoff", "max_ms", up_to(LONGEST_MS)),
        ("Backoff", "reset_after_ms", up_to(LONGEST_MS)),
        ("Backoff", "factor", json!({"minimum": 1, "maximum": 100})),
        ("Backoff", "most_restarts", json!({"minimum": 0, "maximum": 1_000_000})),
        ("CreateToken", "name", name),
        ("CreateToken", "session", json!({"pattern": "^[a-z0-9-]{1,64}$"})),
        ("CreateToken", "expires_in", seconds(1)),
    ];
    let foreign_fields = [
        ("CreateSession", &["owner", "key", "group", "thread"][..]),
        ("ResolveSession", &["owner", "group", "thread"]),
        ("Channel", &["channel_type", "platform_id", "thread_id"]),
        ("CreateToken", &["owner"]),
    ];
    for (schema, fields) in foreign_fields {
        rules.extend(fields.iter().map(|field| (schema, *field, foreign.clone())));
    }
    rules
}

pub(crate) fn apply(schemas: &mut Value) {
    for (schema, property, rule) in rules() {
        let Some(described) = schemas.pointer_mut(&format!("/{schema}/properties/{property}")) else {
            debug_assert!(false, "the document has no {schema}.{property}");
            continue;
        };
        for (key, value) in rule.as_object().into_iter().flatten() {
            described[key] = value.clone();
        }
    }
    schemas["ExecRequest"]["oneOf"] = json!([
        {"required": ["command"], "properties": {"command": {"type": "string"}, "argv": {"type": "null"}}},
        {"required": ["argv"], "properties": {"argv": {"type": "array"}, "command": {"type": "null"}}},
    ]);
    // What is typed is recorded in a recording.
    schemas["StartProcess"]["not"] = json!({
        "required": ["record", "record_input"],
        "properties": {"record": {"const": false}, "record_input": {"const": true}},
    });
    for started in ["StartProcess", "ServiceSpec"] {
        schemas[started]["oneOf"] = schemas["ExecRequest"]["oneOf"].clone();
    }
    schemas["TerminalInput"]["oneOf"] = json!([
        {"required": ["text"], "properties": {"text": {"type": "string"}, "keys": {"type": "null"}, "paste": {"type": "null"}}},
        {
            "required": ["keys"],
            "properties": {"text": {"type": "null"}, "enter": {"type": "null"}, "paste": {"type": "null"}},
            "not": {"properties": {"keys": {"type": "null"}}},
        },
        {
            "required": ["paste"],
            "properties": {"paste": {"type": "string"}, "text": {"type": "null"}, "enter": {"type": "null"}, "keys": {"type": "null"}},
        },
    ]);
    schemas["MergeSession"]["required"] = json!(["from"]);
    // A session that is found by its place has no key and no other place.
    let create = schemas["ResolveSession"]["properties"]["create"]["oneOf"][0].take();
    let absent = json!({"type": "null"});
    schemas["ResolveSession"]["properties"]["create"]["oneOf"][0] = json!({"allOf": [create, {
        "properties": {"key": absent, "group": absent, "channel": absent, "thread": absent},
    }]});
    schemas["CreateToken"]["oneOf"] = json!([
        {"properties": {"scope": {"const": "admin"}, "owner": {"type": "null"}, "session": {"type": "null"}}},
        {"properties": {"scope": {"const": "user"}, "session": {"type": "null"}}},
        {
            "required": ["session"],
            "properties": {"scope": {"const": "session"}, "owner": {"type": "null"}, "session": {"type": "string"}},
        },
    ]);
}
