//! The options of `run`, checked and turned into what will be done. Nothing is opened or started here.

use crate::config::{self, RunDefaults};
use crate::run::Options;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use workroom_types::{
    CommandSpec, ErrorCode, HostMount, Layer, LayerSet, Lifetime, Limits, RoomError, RoomSpec, RoomUser,
    Workspace, base_environment, parse_bytes, parse_cpus, parse_duration, set_variable,
};

/// The least that a program can start in.
const LEAST_MEMORY: u64 = 8 << 20;
const LEAST_DISK: u64 = 1 << 20;

pub(crate) struct Plan {
    pub(crate) room: RoomSpec,
    /// Its terminal, if it gets one, is decided when the caller's is known.
    pub(crate) command: CommandSpec,
    pub(crate) terminal: Terminal,
    pub(crate) timeout: Option<Duration>,
    pub(crate) capture: bool,
    /// Limits that the caller named, about which it wants to know if they cannot be kept.
    pub(crate) asked_limits: LayerSet,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Terminal {
    /// When stdin and stdout are terminals.
    Auto,
    Always,
    Never,
}

impl Plan {
    pub(crate) fn from_options(options: Options) -> Result<Plan, RoomError> {
        let defaults = config::load()?.run;
        let user = crate::arguments::user(&options.user);
        let asked_limits = [
            (options.memory.is_some(), Layer::Memory),
            (options.cpus.is_some(), Layer::Cpu),
            (options.pids.is_some(), Layer::Pids),
        ];
        let asked_limits =
            asked_limits.into_iter().filter(|(asked, _)| *asked).map(|(_, layer)| layer).collect();
        let limits = limits(&options, &defaults)?;
        let timeout = options.timeout.as_ref().or(defaults.timeout.as_ref());
        let timeout = timeout.map(|text| parse_duration(text)).transpose().map_err(wrong("--timeout"))?;
        let workspace = options.workspace.as_deref().map(workspace).transpose()?;
        let mounts =
            defaults.ro.iter().chain(&options.ro).map(|text| host_mount(text)).collect::<Result<_, _>>()?;
        let room = RoomSpec {
            workspace,
            mounts,
            require: layers("--require", &options.require)?,
            allow_missing: layers("--allow-missing", &options.allow_missing)?,
            without: layers("--without", &options.without)?,
            ..RoomSpec::new(room_id()?, user, limits, Lifetime::FirstCommand)
        };
        if !options.workdir.starts_with('/') {
            return Err(RoomError::invalid(
                format!("the working directory \"{}\" is not an absolute path", options.workdir),
                "name a directory of the room, such as /workspace",
            ));
        }
        let terminal = match (options.tty, options.no_tty || options.json) {
            (_, true) => Terminal::Never,
            (true, false) => Terminal::Always,
            (false, false) => Terminal::Auto,
        };
        let command = CommandSpec {
            argv: options.command.into_iter().map(OsStringExt::into_vec).collect(),
            env: environment(user, defaults.env.iter().chain(&options.env))?,
            cwd: options.workdir.into_bytes(),
            user,
            terminal: None,
        };
        Ok(Plan { room, command, terminal, timeout, capture: options.json, asked_limits })
    }
}

fn wrong(option: &'static str) -> impl Fn(String) -> RoomError {
    move |reason| RoomError::invalid(format!("{option}: {reason}"), "")
}

fn limits(options: &Options, defaults: &RunDefaults) -> Result<Limits, RoomError> {
    let mut limits = Limits::default();
    let size = |option, given: &Option<String>, default: &Option<String>| {
        given.as_ref().or(default.as_ref()).map(|text| parse_bytes(text)).transpose().map_err(wrong(option))
    };
    if let Some(memory) = size("--memory", &options.memory, &defaults.memory)? {
        at_least("--memory", memory, LEAST_MEMORY)?;
        limits.memory = Some(memory);
    }
    if let Some(disk) = size("--disk", &options.disk, &defaults.disk)? {
        at_least("--disk", disk, LEAST_DISK)?;
        limits.disk = disk;
    }
    if let Some(cpus) = options.cpus.as_ref().or(defaults.cpus.as_ref()) {
        limits.cpus_milli = Some(parse_cpus(cpus).map_err(wrong("--cpus"))?);
    }
    if let Some(pids) = options.pids.or(defaults.pids) {
        if pids == 0 || pids > 4 << 20 {
            return Err(RoomError::invalid(
                format!("--pids {pids} is outside 1 to 4194304"),
                "a shell with a pipeline needs about 10",
            ));
        }
        limits.pids = Some(pids);
    }
    Ok(limits)
}

fn at_least(option: &str, given: u64, least: u64) -> Result<(), RoomError> {
    if given >= least {
        return Ok(());
    }
    Err(RoomError::invalid(
        format!("{option} of {} is too little for any program", workroom_types::format_bytes(given)),
        format!("give at least {}", workroom_types::format_bytes(least)),
    ))
}

pub(crate) fn layers(option: &str, names: &[String]) -> Result<LayerSet, RoomError> {
    names
        .iter()
        .map(|name| {
            Layer::from_name(name).ok_or_else(|| {
                let known: Vec<&str> = Layer::ALL.iter().map(|layer| layer.name()).collect();
                RoomError::invalid(
                    format!("{option}: there is no layer \"{name}\""),
                    format!("the layers are {}", known.join(", ")),
                )
            })
        })
        .collect()
}

fn workspace(text: &str) -> Result<Workspace, RoomError> {
    let (path, read_only) = match text.strip_suffix(":ro") {
        Some(path) => (path, true),
        None => (text.strip_suffix(":rw").unwrap_or(text), false),
    };
    let source = host_path("workspace", path)?;
    if !source.is_dir() {
        return Err(not_found(format!("the workspace {} is not a directory", source.display())));
    }
    Ok(Workspace { source, read_only })
}

pub(crate) fn host_mount(text: &str) -> Result<HostMount, RoomError> {
    let (path, place) = text.split_once(':').unwrap_or((text, text));
    let mount = HostMount { source: host_path("path", path)?, target: PathBuf::from(place) };
    workroom_room::check_host_mount(&mount)?;
    Ok(mount)
}

fn host_path(what: &str, path: &str) -> Result<PathBuf, RoomError> {
    let real = std::fs::canonicalize(path)
        .map_err(|error| not_found(format!("the {what} \"{path}\" cannot be used: {error}")))?;
    if real == Path::new("/") {
        return Err(RoomError::invalid(
            format!("the {what} \"{path}\" is the whole machine"),
            "name a directory that holds only what the room may see",
        ));
    }
    Ok(real)
}

fn not_found(detail: String) -> RoomError {
    RoomError::new(ErrorCode::PathNotFound, detail, "name one that exists on this machine")
}

/// Built from nothing: only what is set here and what the caller names.
fn environment<'a>(
    user: RoomUser,
    named: impl Iterator<Item = &'a String>,
) -> Result<Vec<Vec<u8>>, RoomError> {
    let mut env = base_environment(user);
    for pair in named {
        let (name, value) = pair.split_once('=').ok_or_else(|| {
            RoomError::invalid(format!("--env \"{pair}\" has no value"), "write it like --env NAME=value")
        })?;
        let first = name.bytes().next().unwrap_or(b'=');
        if first.is_ascii_digit()
            || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
            || name.is_empty()
        {
            return Err(RoomError::invalid(
                format!("--env \"{name}\" is not a variable's name"),
                "names are letters, digits and _, and do not start with a digit",
            ));
        }
        set_variable(&mut env, name.to_owned(), value.to_owned());
    }
    Ok(env.into_iter().map(|(name, value)| format!("{name}={value}").into_bytes()).collect())
}

fn room_id() -> Result<String, RoomError> {
    let mut bytes = [0u8; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| RoomError::new(ErrorCode::RoomSetup, format!("no randomness: {error}"), ""))?;
    Ok(format!("run-{:016x}", u64::from_ne_bytes(bytes)))
}
