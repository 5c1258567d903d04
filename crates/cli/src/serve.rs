//! `workroom serve`: the host daemon.

use crate::EXIT_FAULT;
use crate::config::{self, MasterKeyDefaults, ServeDefaults};
use crate::remote::complain;
use std::io::{IsTerminal, Write};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::level_filters::LevelFilter;
use workroom_engine::{Engine, EngineConfig, KeySource, RecordWhat, StayAwake};
use workroom_room::Spawner;
use workroom_server::{Listeners, ServerConfig};
use workroom_types::{RoomError, parse_bytes, parse_cpus, parse_duration};

const DEFAULT_LISTEN: &str = "127.0.0.1:7300";

#[derive(clap::Args)]
#[command(after_help = "Example:\n  workroom serve --listen 127.0.0.1:0 --state /srv/workroom")]
pub(crate) struct Options {
    /// Listen on this address; port 0 picks a free one; may be repeated [default: 127.0.0.1:7300]
    #[arg(long, value_name = "ADDR")]
    listen: Vec<String>,
    /// Listen on this unix socket too [default: STATE/workroom.sock]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Where everything durable lives [default: $WORKROOM_STATE, else the user's state directory]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Another name that clients and web pages may call this server by; may be repeated
    #[arg(long, value_name = "NAME")]
    host_name: Vec<String>,
    /// Allow --listen on an address that other machines can reach
    #[arg(long)]
    expose: bool,
    /// How the log on stderr is written
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "json"])]
    log_format: String,
    /// Log warnings and errors only
    #[arg(long)]
    quiet: bool,
    /// Print the OpenAPI document and do nothing else
    #[arg(long, hide = true)]
    print_openapi: bool,
}

pub(crate) fn run(options: Options, spawner: Option<Result<Spawner, RoomError>>) -> ExitCode {
    if options.print_openapi {
        // Whoever reads it may have seen enough.
        let _ = std::io::stdout().write_all(workroom_server::openapi().as_bytes());
        return ExitCode::SUCCESS;
    }
    // Everything that is made from here on is ours alone, whatever the caller's umask.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    raise_open_files();
    keep_cores_empty();
    start_log(options.quiet, &options.log_format);
    let served = Plan::from_options(options).and_then(|plan| serve(plan, spawner));
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            complain(&sentence);
            ExitCode::from(EXIT_FAULT)
        }
    }
}

/// Descriptors that there is a place for from the start: ten thousand rooms, and a little more.
const DESCRIPTORS: u64 = 1 << 16;

/// Every connection and every room takes descriptors.
pub(crate) fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    // While there is one thread: later, whenever the table grows, all threads that need a descriptor wait for every processor
    // of the machine to have passed by, which takes 10 ms and more.
    let last = maximum.map_or(DESCRIPTORS, |most| most.min(DESCRIPTORS)).saturating_sub(1);
    let _ = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stderr(), last as i32);
}

/// A server that crashes leaves no secrets behind. One byte and not none: a program that takes cores is then kept away too.
fn keep_cores_empty() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(1), maximum: Some(1) });
}

/// One entry of the log, on its way to stderr without secrets.
#[derive(Default)]
struct CleanLog {
    entry: Vec<u8>,
}

impl Write for CleanLog {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        self.entry.extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// An entry is written whole: a secret could be in two pieces of it.
impl Drop for CleanLog {
    fn drop(&mut self) {
        let _ = std::io::stderr().write_all(&workroom_engine::redact_log(&self.entry));
    }
}

pub(crate) fn start_log(quiet: bool, format: &str) {
    let named = std::env::var("WORKROOM_LOG").ok().and_then(|name| name.parse::<LevelFilter>().ok());
    let level = match (quiet, named) {
        (true, _) => LevelFilter::WARN,
        (false, Some(level)) => level,
        (false, None) => LevelFilter::INFO,
    };
    let log = tracing_subscriber::fmt().with_max_level(level).with_writer(CleanLog::default);
    // There is none yet: this is the only place that sets one.
    let _ = match format {
        "json" => tracing::subscriber::set_global_default(log.json().finish()),
        _ => {
            let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            tracing::subscriber::set_global_default(log.with_ansi(colour).finish())
        }
    };
}

/// From options and configuration to what will be done. Nothing is opened or started by making it.
#[derive(Debug)]
struct Plan {
    addresses: Vec<SocketAddr>,
    socket: PathBuf,
    server: ServerConfig,
    engine: EngineConfig,
}

impl Plan {
    fn from_options(options: Options) -> Result<Plan, String> {
        let defaults = config::load().map_err(|error| error.to_string())?.serve;
        let state = match options.state.or(defaults.state.clone()) {
            Some(state) => state,
            None => workroom_client::state_dir().map_err(|error| error.to_string())?,
        };
        // Rooms and what records them are found by this path long after the working directory has changed.
        let state = std::path::absolute(&state)
            .map_err(|error| format!("the state directory {} cannot be used: {error}", state.display()))?;
        let socket =
            options.socket.or(defaults.socket.clone()).unwrap_or_else(|| state.join("workroom.sock"));
        let listen = match (options.listen.is_empty(), defaults.listen.is_empty()) {
            (false, _) => options.listen,
            (true, false) => defaults.listen.clone(),
            (true, true) => vec![DEFAULT_LISTEN.to_owned()],
        };
        let addresses = listen.iter().map(|text| address(text, options.expose)).collect::<Result<_, _>>()?;
        let engine = engine_config(EngineConfig::for_machine(state, machine_memory()), &defaults)?;
        let server = server_config(&defaults, options.host_name)?;
        Ok(Plan { addresses, socket, server, engine })
    }
}

/// `127.0.0.1:7300`, `[::1]:7300`, `localhost:7300`, or a port alone.
fn address(text: &str, expose: bool) -> Result<SocketAddr, String> {
    let full = match text.parse::<u16>() {
        Ok(port) => format!("127.0.0.1:{port}"),
        Err(_) => text.to_owned(),
    };
    let found = full.to_socket_addrs().ok().and_then(|mut found| found.next()).ok_or_else(|| {
        format!("--listen \"{text}\" is not an address; write it like {DEFAULT_LISTEN} or [::1]:7300")
    })?;
    if !found.ip().is_loopback() && !expose {
        return Err(format!(
            "listening on {text} lets everybody who can reach this machine send requests, and lets everybody on \
             the way read their tokens, for nothing is encrypted; put a proxy with TLS before {DEFAULT_LISTEN}, or \
             give --expose"
        ));
    }
    Ok(found)
}

pub(crate) fn machine_memory() -> u64 {
    let info = rustix::system::sysinfo();
    let (total, unit): (u64, u64) = (info.totalram, u64::from(info.mem_unit));
    total.saturating_mul(unit.max(1))
}

/// Replaces a default where the configuration has a value for it.
fn set<T, U>(
    key: &str,
    target: &mut T,
    value: Option<&U>,
    parse: impl Fn(&U) -> Result<T, String>,
) -> Result<(), String> {
    if let Some(value) = value {
        *target = parse(value).map_err(|reason| format!("the configuration's serve.{key}: {reason}"))?;
    }
    Ok(())
}

/// Where the master key comes from.
fn master_key(given: &MasterKeyDefaults) -> Result<KeySource, String> {
    let wrong = "the configuration's serve.master_key names one of file, env and command";
    match (&given.file, &given.env, &given.command) {
        (Some(file), None, None) if file.is_absolute() => Ok(KeySource::File(file.clone())),
        (Some(file), None, None) => Err(format!(
            "the configuration's serve.master_key.file {} is not an absolute path",
            file.display()
        )),
        (None, Some(name), None) => Ok(KeySource::Environment(name.clone())),
        (None, None, Some(command)) if !command.is_empty() => Ok(KeySource::Command(command.clone())),
        _ => Err(wrong.to_owned()),
    }
}

pub(crate) fn engine_config(
    mut engine: EngineConfig,
    defaults: &ServeDefaults,
) -> Result<EngineConfig, String> {
    let bytes = |text: &String| parse_bytes(text);
    let time = |text: &String| parse_duration(text);
    let number = |number: &u64| Ok(*number);
    let (quotas, given) = (&mut engine.quotas, &defaults.quotas);
    set("quotas.live", &mut quotas.live, given.live.as_ref(), number)?;
    // Unless told, one user may have all of them.
    quotas.live_per_user = quotas.live;
    set("quotas.live_per_user", &mut quotas.live_per_user, given.live_per_user.as_ref(), number)?;
    let per_day = given.created_per_user_per_day.as_ref();
    set("quotas.created_per_user_per_day", &mut quotas.created_per_user_per_day, per_day, number)?;
    set("quotas.queue", &mut quotas.queue, given.queue.as_ref(), number)?;
    set("quotas.longest_wait", &mut quotas.longest_wait, given.longest_wait.as_ref(), time)?;

    let awake = |name: &String| match name.as_str() {
        "auto" => Ok(StayAwake::Auto),
        "always" => Ok(StayAwake::Always),
        "never" => Ok(StayAwake::Never),
        other => Err(format!("\"{other}\" is none of auto, always and never")),
    };
    set("stay_awake", &mut engine.stay_awake, defaults.stay_awake.as_ref(), awake)?;
    engine.master_key = defaults.master_key.as_ref().map(master_key).transpose()?;

    let (exec, given) = (&mut engine.exec, &defaults.exec);
    set("exec.timeout", &mut exec.timeout, given.timeout.as_ref(), time)?;
    set("exec.longest_timeout", &mut exec.longest_timeout, given.longest_timeout.as_ref(), time)?;
    set("exec.output", &mut exec.output, given.output.as_ref(), bytes)?;
    set("exec.largest_output", &mut exec.largest_output, given.largest_output.as_ref(), bytes)?;
    set("exec.concurrent", &mut exec.concurrent, given.concurrent.as_ref(), number)?;
    if exec.timeout > exec.longest_timeout {
        return Err(format!(
            "the configuration's serve.exec.timeout of {} s is over its longest_timeout of {} s; change one of them",
            exec.timeout.as_secs(),
            exec.longest_timeout.as_secs()
        ));
    }
    if exec.output > exec.largest_output {
        return Err(format!(
            "the configuration's serve.exec.output of {} bytes is over its largest_output of {}; change one of them",
            exec.output, exec.largest_output
        ));
    }

    let (recordings, given) = (&mut engine.recordings, &defaults.recordings);
    let what = |name: &String| match name.as_str() {
        "terminals" => Ok(RecordWhat::Terminals),
        "all" => Ok(RecordWhat::All),
        "none" => Ok(RecordWhat::None),
        other => Err(format!("\"{other}\" is none of terminals, all and none")),
    };
    set("recordings.record", &mut engine.processes.record, given.record.as_ref(), what)?;
    set("recordings.size", &mut recordings.size, given.size.as_ref(), bytes)?;
    set("recordings.session_size", &mut recordings.session_size, given.session_size.as_ref(), bytes)?;
    let count = |number: &u64| usize::try_from(*number).map_err(|error| error.to_string());
    set("recordings.count", &mut recordings.count, given.count.as_ref(), count)?;

    let (network, given) = (&mut engine.network, &defaults.network);
    for text in &given.name_servers {
        let server = text.parse().or_else(|_| text.parse().map(|address: IpAddr| (address, 53).into()));
        network.name_servers.push(server.map_err(|_| {
            format!("the configuration's serve.network.name_servers has \"{text}\", which is no address; write it like 192.0.2.53 or [2001:db8::53]:5353")
        })?);
    }
    let some = |number: &u64| usize::try_from(*number).map(Some).map_err(|error| error.to_string());
    set("network.connections", &mut network.connections, given.connections.as_ref(), some)?;

    let (policy, given) = (&mut engine.policy, &defaults.policy);
    set("policy.memory", &mut policy.memory, given.memory.as_ref(), |text| parse_bytes(text).map(Some))?;
    set("policy.cpus", &mut policy.cpus_milli, given.cpus.as_ref(), |text| parse_cpus(text).map(Some))?;
    set("policy.pids", &mut policy.pids, given.pids.as_ref(), |number| Ok(Some(*number)))?;
    set("policy.open_files", &mut policy.open_files, given.open_files.as_ref(), |number| Ok(Some(*number)))?;
    engine.policy_file = defaults.policy_file.clone();
    engine.mounts = defaults.ro.iter().map(|text| mount(text)).collect::<Result<_, _>>()?;
    Ok(engine)
}

fn mount(text: &str) -> Result<(PathBuf, PathBuf), String> {
    let mount = crate::plan::host_mount(text)
        .map_err(|error| format!("the configuration's serve.ro \"{text}\" cannot be used: {error}"))?;
    Ok((mount.source, mount.target))
}

fn server_config(defaults: &ServeDefaults, host_names: Vec<String>) -> Result<ServerConfig, String> {
    let bytes = |text: &String| parse_bytes(text);
    let number = |number: &u64| Ok(*number);
    let mut server = ServerConfig::default();
    server.host_names.extend(defaults.host_names.iter().cloned().chain(host_names));
    for name in &server.host_names {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '[' | ']' | ':');
        if name.is_empty() || !name.chars().all(plain) {
            return Err(format!(
                "the host name \"{name}\" is not one; write it like rooms.example, without a port"
            ));
        }
    }
    set("body_limit", &mut server.body.json, defaults.body_limit.as_ref(), bytes)?;
    set("private_file_limit", &mut server.body.private_file, defaults.private_file_limit.as_ref(), bytes)?;
    set("event_limit", &mut server.body.event, defaults.event_limit.as_ref(), bytes)?;
    let count = |number: &u64| usize::try_from(*number).map_err(|error| error.to_string());
    set("slots", &mut server.slots, defaults.slots.as_ref(), count)?;
    set("rate_limit", &mut server.rate.per_second, defaults.rate_limit.as_ref(), number)?;
    // Two seconds' worth, unless told.
    server.rate.burst = server.rate.per_second.saturating_mul(2);
    set("rate_burst", &mut server.rate.burst, defaults.rate_burst.as_ref(), number)?;
    Ok(server)
}

/// What a server needs before it opens anything: its thread, a directory to be in, and who makes its rooms.
pub(crate) fn begin(
    state: &Path,
    spawner: Option<Result<Spawner, RoomError>>,
) -> Result<(tokio::runtime::Runtime, Spawner), String> {
    // One thread: what the host does itself is little, and a request that goes from thread to thread waits for a
    // processor to wake up each time. What waits for the disk, or takes long, is done on threads beside it.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("the server's threads could not be started: {error}; raise its limits"))?;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(state)
        .map_err(|error| format!("the state directory {} cannot be made: {error}", state.display()))?;
    let spawner = spawner.unwrap_or_else(Spawner::start).map_err(|error| error.to_string())?;
    Ok((runtime, spawner))
}

/// From nothing to nothing; rooms go on.
fn serve(plan: Plan, spawner: Option<Result<Spawner, RoomError>>) -> Result<(), String> {
    let state = plan.engine.state.clone();
    let (runtime, spawner) = begin(&state, spawner)?;
    let served = runtime.block_on(async {
        let (tcp, addresses) = listen_tcp(&plan.addresses).await?;
        let socket = Socket::bind(&plan.socket)?;
        let mut signals = Signals::new()?;
        let engine = Engine::open(plan.engine, addresses.clone(), spawner)
            .await
            .map_err(|problem| problem.to_string())?;
        announce(&addresses, &plan.socket, &state.join("token"));
        let listeners = Listeners { tcp, unix: vec![socket.listener()?] };
        workroom_server::run(plan.server, engine.clone(), listeners, async {
            // Waited for first: a log that is not written does not look at what it would have said.
            let signal = signals.next().await;
            tracing::info!(signal, "ending; rooms go on");
            // From here on the next one ends us at once: what was acknowledged is on disk.
            tokio::spawn(async move {
                signals.next().await;
                std::process::exit(0);
            });
        })
        .await
        .map_err(|error| format!("the server ended: {error}"))?;
        engine.shut_down().await;
        drop(socket);
        Ok(())
    });
    // A command that is still waited for must not hold us up: its room goes on without us.
    runtime.shutdown_timeout(Duration::from_secs(1));
    served
}

pub(crate) async fn listen_tcp(
    addresses: &[SocketAddr],
) -> Result<(Vec<tokio::net::TcpListener>, Vec<SocketAddr>), String> {
    let mut listeners = Vec::new();
    let mut found = Vec::new();
    for address in addresses {
        let cannot = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::AddrInUse => format!(
                "somebody listens on {address} already; end that server, or give --listen with another port (0 picks one)"
            ),
            _ => format!(
                "{address} cannot be listened on: {error}; give --listen with an address of this machine"
            ),
        };
        let listener = tokio::net::TcpListener::bind(address).await.map_err(cannot)?;
        found.push(listener.local_addr().map_err(cannot)?);
        listeners.push(listener);
    }
    Ok((listeners, found))
}

/// A unix socket of ours, whose name goes when we do.
struct Socket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode: what is found under the name later may be somebody else's.
    identity: (u64, u64),
}

impl Socket {
    fn bind(path: &Path) -> Result<Socket, String> {
        let shown = path.display();
        remove_stale(path)?;
        let listener = UnixListener::bind(path).map_err(|error| {
            format!("the unix socket {shown} cannot be made: {error}; give --socket with a path of under 108 bytes in a directory that exists")
        })?;
        let unusable = |error| format!("the unix socket {shown} cannot be used: {error}");
        listener.set_nonblocking(true).map_err(unusable)?;
        let meta = std::fs::symlink_metadata(path).map_err(unusable)?;
        Ok(Socket { listener, path: path.to_owned(), identity: (meta.dev(), meta.ino()) })
    }

    fn listener(&self) -> Result<tokio::net::UnixListener, String> {
        self.listener
            .try_clone()
            .and_then(tokio::net::UnixListener::from_std)
            .map_err(|error| format!("the unix socket {} cannot be used: {error}", self.path.display()))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let now = std::fs::symlink_metadata(&self.path).map(|meta| (meta.dev(), meta.ino()));
        if now.is_ok_and(|now| now == self.identity) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// A socket file outlives a server that was killed. One that answers is another server's.
fn remove_stale(path: &Path) -> Result<(), String> {
    let shown = path.display();
    let Ok(meta) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !meta.file_type().is_socket() {
        return Err(format!(
            "{shown} is there and is no socket; remove it, or give --socket with another path"
        ));
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(format!(
            "a server listens on {shown} already; end it, or give --state with another directory"
        )),
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => std::fs::remove_file(path)
            .map_err(|error| format!("the old socket {shown} cannot be removed: {error}; remove it")),
        Err(error) => Err(format!("the old socket {shown} cannot be looked at: {error}; remove it")),
    }
}

/// Three words that programs read. They come when requests are answered, and not before.
fn announce(addresses: &[SocketAddr], socket: &Path, token: &Path) {
    let mut text = String::new();
    for address in addresses {
        text.push_str(&format!("listening http://{address}\n"));
    }
    text.push_str(&format!("listening unix:{}\ntoken {}\n", socket.display(), token.display()));
    let mut stdout = std::io::stdout();
    // A server whose starter does not listen serves all the same.
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

/// What asks a server to end.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(crate) fn new() -> Result<Signals, String> {
        let listen = |kind| signal(kind).map_err(|error| format!("signals cannot be waited for: {error}"));
        Ok(Signals {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_is_listened_on_unless_told() {
        for (text, expected) in
            [("127.0.0.1:0", "127.0.0.1:0"), ("7301", "127.0.0.1:7301"), ("[::1]:7300", "[::1]:7300")]
        {
            assert_eq!(address(text, false), Ok(expected.parse().expect("an address")), "{text}");
        }
        let refused = address("0.0.0.0:7300", false).expect_err("everybody");
        assert!(refused.contains("--expose"), "{refused}");
        assert_eq!(address("0.0.0.0:7300", true), Ok("0.0.0.0:7300".parse().expect("an address")));
        assert!(address("[::]:1", false).is_err());
        for wrong in ["", "nonsense", "127.0.0.1", "127.0.0.1:99999"] {
            assert!(address(wrong, true).is_err(), "{wrong}");
        }
    }

    fn configured(text: &str) -> Result<(EngineConfig, ServerConfig), String> {
        let defaults: config::Config = toml::from_str(text).map_err(|error| error.to_string())?;
        let engine = engine_config(EngineConfig::for_machine("/state".into(), 1 << 33), &defaults.serve)?;
        Ok((engine, server_config(&defaults.serve, vec!["given.example".into()])?))
    }

    #[test]
    fn the_configuration_sets_what_it_names_and_leaves_the_rest() {
        let (engine, server) = configured(
            "[serve]\nhost_names = [\"a.example\"]\nrate_limit = 10\nbody_limit = \"1M\"\n\
             [serve.quotas]\nlive = 5\nlongest_wait = \"2m\"\n\
             [serve.exec]\ntimeout = \"90s\"\noutput = \"2M\"\n\
             [serve.policy]\nmemory = \"512M\"\ncpus = \"0.5\"\n",
        )
        .expect("a good configuration");
        assert_eq!((engine.quotas.live, engine.quotas.live_per_user, engine.quotas.queue), (5, 5, 1000));
        assert_eq!(engine.quotas.longest_wait, Duration::from_secs(120));
        assert_eq!((engine.exec.timeout, engine.exec.output), (Duration::from_secs(90), 2 << 20));
        assert_eq!((engine.policy.memory, engine.policy.cpus_milli), (Some(512 << 20), Some(500)));
        assert_eq!(engine.policy.pids, Some(1024));
        assert_eq!(server.host_names, ["a.example", "given.example"]);
        assert_eq!((server.rate.per_second, server.rate.burst, server.body.json), (10, 20, 1 << 20));
        assert_eq!(server.body.event, 256 << 10);
    }

    #[test]
    fn a_wrong_configuration_names_the_key() {
        for (text, key) in [
            ("[serve.quotas]\nlongest_wait = \"soon\"", "serve.quotas.longest_wait"),
            ("[serve.exec]\noutput = \"much\"", "serve.exec.output"),
            ("[serve.exec]\ntimeout = \"2d\"", "longest_timeout"),
            ("[serve]\nbody_limit = \"x\"", "serve.body_limit"),
            ("[serve]\nro = [\"/\"]", "serve.ro"),
            ("[serve]\nhost_names = [\"http://a/\"]", "http://a/"),
            ("[serve]\nlisten_on = 1", "listen_on"),
        ] {
            let reason = configured(text).map(|_| ()).expect_err(text);
            assert!(reason.contains(key), "{reason}");
        }
    }

    #[test]
    fn a_socket_is_taken_over_from_the_dead_and_not_from_the_living() {
        let dir = std::env::temp_dir().join(format!("workroom-serve-test-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let path = dir.join("s.sock");
        drop(UnixListener::bind(&path).expect("a socket, left behind"));
        let ours = Socket::bind(&path).expect("nobody listens there any more");
        let refused = Socket::bind(&path).err().expect("somebody does now");
        assert!(refused.contains("already"), "{refused}");
        drop(ours);
        assert!(!path.exists(), "its name goes with it");
        std::fs::write(&path, "a file").expect("a file");
        assert!(Socket::bind(&path).err().expect("a file is nobody's socket").contains("no socket"));
        assert!(path.exists());
        std::fs::remove_dir_all(&dir).expect("cleaned up");
    }
}
