//! Defaults from a file: `$WORKROOM_CONFIG`, else `~/.config/workroom/config.toml`, else
//! `/etc/workroom/config.toml`. The first that exists is read.

use serde::Deserialize;
use std::path::PathBuf;
use workroom_engine::read_trusted;
use workroom_types::RoomError;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    pub(crate) run: RunDefaults,
    pub(crate) serve: ServeDefaults,
}

/// What `workroom run` does unless its options say otherwise.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RunDefaults {
    pub(crate) memory: Option<String>,
    pub(crate) cpus: Option<String>,
    pub(crate) pids: Option<u64>,
    pub(crate) disk: Option<String>,
    pub(crate) timeout: Option<String>,
    /// Read-only host paths, as `--ro` takes them.
    pub(crate) ro: Vec<String>,
    /// `K=V`, as `--env` takes them.
    pub(crate) env: Vec<String>,
}

/// What `workroom serve` does unless its options say otherwise.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ServeDefaults {
    pub(crate) listen: Vec<String>,
    pub(crate) socket: Option<PathBuf>,
    pub(crate) state: Option<PathBuf>,
    pub(crate) host_names: Vec<String>,
    /// Host paths that every room sees read-only, as `run --ro` takes them.
    pub(crate) ro: Vec<String>,
    /// Requests a second of each caller; 0 for any number.
    pub(crate) rate_limit: Option<u64>,
    pub(crate) rate_burst: Option<u64>,
    /// Whether processor time is spent on being faster: `auto`, `always` or `never`.
    pub(crate) stay_awake: Option<String>,
    /// Of JSON bodies.
    pub(crate) body_limit: Option<String>,
    pub(crate) private_file_limit: Option<String>,
    pub(crate) event_limit: Option<String>,
    /// That each caller has under `/compat/slots`.
    pub(crate) slots: Option<u64>,
    pub(crate) quotas: QuotaDefaults,
    pub(crate) exec: ServeExecDefaults,
    pub(crate) policy: PolicyDefaults,
    /// What is looked at again whenever it changes; `policy.toml` in the state directory without it.
    pub(crate) policy_file: Option<PathBuf>,
    pub(crate) network: NetworkDefaults,
    pub(crate) recordings: RecordingDefaults,
    /// Where the master key of secrets is; `master.key` in the state directory without it.
    pub(crate) master_key: Option<MasterKeyDefaults>,
}

/// One of the three.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MasterKeyDefaults {
    /// Made on first use.
    pub(crate) file: Option<PathBuf>,
    /// The name of a variable that holds the key.
    pub(crate) env: Option<String>,
    /// A program and its arguments, which prints the key.
    pub(crate) command: Option<Vec<String>>,
}

/// What is recorded, and how much of it is kept.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RecordingDefaults {
    /// `terminals`, `all` or `none`, of those that do not say.
    pub(crate) record: Option<String>,
    pub(crate) size: Option<String>,
    pub(crate) session_size: Option<String>,
    pub(crate) count: Option<u64>,
}

/// How the network of rooms is served.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NetworkDefaults {
    /// Whom to ask for names: addresses, with a port if it is not 53; those of the machine without it.
    pub(crate) name_servers: Vec<String>,
    /// Connections that a session may have open.
    pub(crate) connections: Option<u64>,
}

/// How much of the machine sessions may take; 0 for no limit.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct QuotaDefaults {
    pub(crate) live: Option<u64>,
    pub(crate) live_per_user: Option<u64>,
    pub(crate) created_per_user_per_day: Option<u64>,
    pub(crate) queue: Option<u64>,
    pub(crate) longest_wait: Option<String>,
}

/// What a session's command gets, and the most that a caller may ask for.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ServeExecDefaults {
    pub(crate) timeout: Option<String>,
    pub(crate) longest_timeout: Option<String>,
    pub(crate) output: Option<String>,
    pub(crate) largest_output: Option<String>,
    pub(crate) concurrent: Option<u64>,
}

/// What a session's room may use where its creator says nothing.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PolicyDefaults {
    pub(crate) memory: Option<String>,
    pub(crate) cpus: Option<String>,
    pub(crate) pids: Option<u64>,
    pub(crate) open_files: Option<u64>,
}

pub(crate) fn load() -> Result<Config, RoomError> {
    let named = std::env::var_os("WORKROOM_CONFIG").map(PathBuf::from);
    let home = std::env::var_os("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config")))
        .map(|dir| dir.join("workroom/config.toml"));
    let must_exist = named.is_some();
    let candidates = match named {
        Some(path) => vec![path],
        None => home.into_iter().chain([PathBuf::from("/etc/workroom/config.toml")]).collect(),
    };
    use std::io::ErrorKind::{NotFound, PermissionDenied};
    for path in candidates {
        let text = match read_trusted(&path) {
            Ok(text) => text,
            // A home that is not ours to read (after su, say) holds no configuration for us.
            Err(error) if !must_exist && matches!(error.kind(), NotFound | PermissionDenied) => continue,
            Err(error) => {
                return Err(RoomError::invalid(
                    format!("the configuration {} cannot be read: {error}", path.display()),
                    "mend it or unset WORKROOM_CONFIG",
                ));
            }
        };
        return toml::from_str(&text).map_err(|error| {
            let reason = error.message().lines().next().unwrap_or_default().to_owned();
            RoomError::invalid(
                format!("the configuration {} is wrong: {reason}", path.display()),
                "docs/reference/configuration.md shows every key",
            )
        });
    }
    Ok(Config::default())
}
