"""What schemathesis cannot know of this API by itself: two checks, and how whole numbers are written."""

import schemathesis
from schemathesis.generation.meta import TestPhase
from schemathesis.specs.openapi.checks import positive_data_acceptance

# Refusals of requests that are right by the document. Any other is a fault of the document or of the server.
EXPECTED = {
    # What a room and a machine have is not for a document to say.
    "command_not_found",
    "command_not_executable",
    "layer_missing",
    # Made-up names are those of no secret.
    "secret_not_found",
    # A session whose time is over.
    "room_gone",
    # One key is generated and then tried with many requests.
    "idempotency_mismatch",
    # Made-up etags, ranges, patches and archives are those of no file.
    "precondition_failed",
    "range_not_satisfiable",
    "file_too_large",
    "patch_failed",
    "archive_refused",
    "path_outside_workspace",
    # A watch is an event stream, and schemathesis asks for JSON.
    "not_acceptable",
}
LONGEST_TIMEOUT_MS = 24 * 3600 * 1000
LARGEST_OUTPUT = 64 << 20
MOST_FOREIGN = 256


@schemathesis.check
def right_requests_are_taken(ctx, response, case):
    """As `positive_data_acceptance`, which knows statuses alone: here it takes a reason."""
    if case.meta and case.meta.generation.mode.is_positive and 400 <= response.status_code < 500:
        code = response.json().get("code")
        if code == "limit_exceeded" and case.path.endswith("/acquire"):
            return None  # Others have all slots.
        if code in EXPECTED or code == "invalid_argument" and beyond_a_schema(case.path, case.body):
            return None
    return positive_data_acceptance(ctx, response, case)


def beyond_a_schema(path, body):
    """Whether a request may be refused for what a schema cannot say."""
    if path.endswith("/attach"):
        return True  # A WebSocket, which schemathesis does not speak.
    if any(part in path for part in ("/files", "/archive", "/watch", "/diff")):
        return True  # Paths, globs, expressions, patches, forms and cursors have grammars of their own.
    if "/terminals" in path:
        return True  # Keys and patterns have grammars of their own, and a directory may not be there.
    if path.endswith("/merge"):
        return True  # Sessions that come from elsewhere are not merged.
    if path.startswith("/v1/pools"):
        return True  # Lengths are of bytes; the least may be more than the most.
    if path.startswith("/v1/secrets/"):
        return True  # A global one has no owner, and base64 is a grammar of its own.
    if not isinstance(body, dict):
        return False
    if (policy_of(path, body) or {}).get("network"):
        return True  # Names and ranges have grammars of their own, and modes go with some fields and not with others.
    if any(len(text.encode()) > MOST_FOREIGN >= len(text) for text in texts(body)):
        return True  # Lengths are of bytes; a schema counts characters.
    if "/services/" in path:
        return True  # What it depends on is to be there; directories, users and paths are the room's.
    if path.endswith(("/exec", "/processes", "/shells", "/run")):
        return (
            body.get("cwd") is not None  # it may not be there
            or body.get("pty") is not None and body.get("stdin") is not None  # a terminal is the stdin
            or body.get("user") == "root"  # a server without privileges has none
            or body.get("stdin_encoding") == "base64"
            or secrets_of(body)
            or (body.get("timeout_ms") or 0) > LONGEST_TIMEOUT_MS  # by the server's configuration
            or (body.get("max_output") or 0) > LARGEST_OUTPUT
        )
    if "/secrets/" in path:
        return body.get("encoding") == "base64"
    # The same thing said twice, in different words.
    create, channel = body.get("create") or {}, body.get("channel") or {}
    owners = {body.get("owner"), create.get("owner")} - {None}
    threads = {body.get("thread"), channel.get("thread_id")} - {None}
    return len(owners) > 1 or len(threads) > 1


def policy_of(path, body):
    """The policy document that a request brings, wherever it is."""
    if not isinstance(body, dict):
        return None
    created = body.get("create")
    document = body if path.endswith("/policy") else body.get("policy") or (created.get("policy") if isinstance(created, dict) else None)
    return document if isinstance(document, dict) else None


def secrets_of(body):
    """A variable is of one of the two; and shells, loaders and interpreters have taken some names."""
    named = body.get("secret_env") or {}
    return bool(named.keys() & (body.get("env") or {}).keys()) or any(name.upper() == name for name in named)


def texts(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from texts(item)


@schemathesis.check
def answers_are_declared(ctx, response, case):
    """Debug builds mark an answer whose status the document does not have for that route."""
    undeclared = response.headers.get("x-undeclared-answer")
    assert not undeclared, f"the document does not declare: {undeclared}"


@schemathesis.hook
def before_call(context, case, kwargs):
    """Ways in which made-up requests would come to nothing."""
    starts = "/services/" in case.path and case.path.rsplit("/", 1)[-1] in ("{name}", "start", "restart")
    if starts and case.method.upper() in ("PUT", "POST") and isinstance(case.query, dict):
        # A made-up service may be restarted for longer than schemathesis waits for an answer.
        case.query.setdefault("wait", "false")
        if case.meta and case.meta.generation.mode.is_positive:
            case.query["wait"] = "false"
    if isinstance(case.query, dict) and str(case.query.get("wait_ms", "")).isdigit():
        # What is waited for may never come.
        case.query["wait_ms"] = str(min(int(case.query["wait_ms"]), 100))
    elif isinstance(case.query, dict) and case.path.endswith("/wait") and case.method.upper() == "GET":
        case.query.setdefault("wait_ms", "100")
    if case.path.startswith("/v1/pools/") and isinstance(case.body, dict) and case.meta and case.meta.generation.mode.is_positive:
        # A pool keeps as many rooms as it is told to, and those who wait for one wait.
        for name, most in (("min", 1), ("max", 2), ("wait_ms", 100)):
            if isinstance(case.body.get(name), int):
                case.body[name] = min(case.body[name], most)
        if isinstance(case.body.get("reset"), dict):
            case.body["reset"]["spares"] = 0
    if case.meta and case.meta.generation.mode.is_positive and case.path.endswith(("/exec", "/run")) and isinstance(case.body, dict):
        # A made-up command may be one that never ends.
        case.body["timeout_ms"] = 1000
    if case.meta and case.meta.generation.mode.is_positive:
        # A session that has next to nothing of the machine answers nobody in time, and others' requests meet it too.
        document = policy_of(case.path, case.body) or {}
        for name, least in (
            ("cpus_milli", 1000), ("memory", 1 << 30), ("pids", 256), ("open_files", 1024), ("disk", 1 << 30), ("inodes", 10_000)
        ):
            if isinstance(document.get(name), int):
                document[name] = max(document[name], least)
        document.pop("require", None)
    if isinstance(case.query, dict) and str(case.query.get("follow")).lower() in ("true", "1"):
        # What is followed has no end.
        case.query["follow"] = "false"
    # One after the other: a repeated key would give back a session that the scenario before has deleted.
    if case.meta and case.meta.phase.name is TestPhase.STATEFUL:
        for key in [name for name in case.headers if name.lower() == "idempotency-key"]:
            del case.headers[key]


@schemathesis.hook
def map_body(context, body):
    """To JSON Schema 1.0 is an integer; the server, as many do, takes only 1 for one."""
    return whole_numbers(body)


def whole_numbers(value):
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, list):
        return [whole_numbers(item) for item in value]
    if isinstance(value, dict):
        return {key: whole_numbers(item) for key, item in value.items()}
    return value
