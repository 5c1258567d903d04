//! What paths and queries are made of, as the OpenAPI document tells it.

#![expect(dead_code, reason = "only their descriptions are used")]

use utoipa::{IntoParams, ToSchema};
use workroom_types::ArchiveFormat;

/// A session, in a path.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct SessionPath {
    /// The session's id.
    #[param(
        pattern = "^[a-z0-9-]{1,64}$",
        min_length = 1,
        max_length = 64,
        example = "20260131-120000-0a1b2c3d"
    )]
    id: String,
}

/// A pool, in a path.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct PoolPath {
    /// The pool's name.
    #[param(
        pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        min_length = 1,
        max_length = 64,
        example = "agents"
    )]
    name: String,
}

/// A process, in a session's path.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct ProcessPath {
    /// The process's id or, while it runs, its number in the room.
    #[param(pattern = "^[a-z0-9-]{1,64}$", min_length = 1, max_length = 64, example = "p-0a1b2c3d")]
    process: String,
}

/// A shell, in a session's path.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct ShellPath {
    /// The shell's id or its name.
    #[param(pattern = "^[a-z0-9-]{1,64}$", min_length = 1, max_length = 64, example = "default")]
    shell: String,
}

/// A terminal, in a session's path.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct TerminalPath {
    /// The terminal's id or its name.
    #[param(
        pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        min_length = 1,
        max_length = 64,
        example = "t-0a1b2c3d"
    )]
    terminal: String,
}

/// A recording, in a session's path.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct RecordingPath {
    /// The id of the process that was recorded.
    #[param(pattern = "^[a-z0-9-]{1,64}$", min_length = 1, max_length = 64, example = "t-0a1b2c3d")]
    process: String,
}

/// A port of a session's room, in a path.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct PortPath {
    /// The room's port.
    #[param(minimum = 1, maximum = 65535, example = 8080)]
    port: u16,
}

/// A mount, in a session's path.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct MountPath {
    /// The mount's alias.
    #[param(pattern = "^[A-Za-z0-9._-]{1,64}$", min_length = 1, max_length = 64, example = "data")]
    alias: String,
}

/// A service, in a session's path.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct ServicePath {
    /// The service's name.
    #[param(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$", min_length = 1, max_length = 64, example = "web")]
    name: String,
}

/// A secret, in a path.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct SecretPath {
    /// The secret's name.
    #[param(pattern = "^[A-Za-z_][A-Za-z0-9_]{0,63}$", min_length = 1, max_length = 64, example = "API_KEY")]
    name: String,
}

/// A snapshot, in a session's path.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct SnapshotPath {
    /// The snapshot's name.
    #[param(
        pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        min_length = 1,
        max_length = 64,
        example = "before-upgrade"
    )]
    name: String,
}

/// A private file, in a session's path.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct PrivatePath {
    /// The file's name.
    #[param(
        pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,119}$",
        min_length = 1,
        max_length = 120,
        example = "transcript.json"
    )]
    name: String,
}

/// A file of a room, in a session's path.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct FileParams {
    /// The file's path, relative to the workspace; slashes in it are slashes of the URL. Any byte can be written as
    /// `%ff`, or as `\\xff`.
    #[param(pattern = "^[A-Za-z0-9_-][A-Za-z0-9._ -]{0,99}$", min_length = 1, example = "src/main.rs")]
    path: String,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct RootParam {
    /// The path is of the whole room, not of the workspace.
    root: Option<bool>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct WriteParams {
    /// Add to the end of what is there.
    append: Option<bool>,
    /// Permissions in octal; those of the file that is replaced, else 0644.
    #[param(pattern = "^0?[0-7]{1,3}$", example = "0755")]
    mode: Option<String>,
    /// Flush it to the disk before it is answered for.
    sync: Option<bool>,
    /// The path is of the whole room, not of the workspace.
    root: Option<bool>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct UploadParams {
    /// The directory that the files' paths begin at; the workspace unless told.
    path: Option<String>,
    /// The paths are of the whole room, not of the workspace.
    root: Option<bool>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ArchiveParams {
    /// The directory to unpack into, which is made if it is not there; the workspace unless told.
    path: Option<String>,
    /// The path is of the whole room, not of the workspace.
    root: Option<bool>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ExportParams {
    /// What to pack; the workspace unless told.
    path: Option<String>,
    /// `tar.zst` unless told.
    #[param(inline)]
    format: Option<ArchiveFormat>,
    /// The path is of the whole room, not of the workspace.
    root: Option<bool>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct WatchParams {
    /// A directory or a file; the workspace unless told.
    path: Option<String>,
    /// Also what is below the directories in it.
    recursive: Option<bool>,
    /// The path is of the whole room, not of the workspace.
    root: Option<bool>,
}

/// A token, in a path.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct TokenPath {
    /// The token's id, which is not its secret.
    #[param(pattern = "^[a-z0-9-]{1,64}$", min_length = 1, max_length = 64)]
    id: String,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct WaitParam {
    /// Seconds to wait for a place when a quota is reached; without, that is refused at once.
    #[param(minimum = 0, maximum = 86400, example = 30)]
    wait: Option<f64>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct EventParams {
    /// Only entries after this one: a `seq` for one session, a `position` for all.
    #[param(minimum = 0)]
    after: Option<i64>,
    /// Entries of one page; 100 unless told. A stream has no end.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

#[derive(ToSchema)]
pub(crate) struct Status {
    #[schema(example = "ok")]
    status: String,
}
