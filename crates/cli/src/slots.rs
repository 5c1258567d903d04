//! `workroom slots`: a server of slots for trainers that speak the slot-server API, and of nothing else.

use crate::remote::complain;
use crate::serve::{Signals, begin, engine_config, listen_tcp, machine_memory, raise_open_files, start_log};
use crate::{EXIT_FAULT, arguments, config};
use std::io::Write;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use workroom_engine::{Engine, EngineConfig};
use workroom_room::Spawner;
use workroom_server::{Listeners, SlotServer, SlotSettings};
use workroom_types::{NetworkPolicy, RoomError};

const DEFAULT_HOST: &str = "127.0.0.1";
const DEFAULT_PORT: u16 = 8080;

/// More rooms than slots: one is built to see what the machine offers, and one that is replaced overlaps with the next.
const SPARE_ROOMS: u64 = 16;

/// What the API's answers need of what is kept of a command.
const LEAST_OUTPUT: u64 = 1 << 20;

const LONGEST_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

#[derive(clap::Args)]
#[command(after_help = "Example:\n  workroom slots --listen 127.0.0.1:8080 --slots 64 --data-dir /srv/slots")]
pub(crate) struct Options {
    /// Listen on this address; port 0 picks a free one [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR", conflicts_with_all = ["host", "port"])]
    listen: Option<String>,
    /// The same in two words: the address
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// The same in two words: the port
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// How many slots there are: slot_0, slot_1, …
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    slots: u32,
    /// Where slots and what they write live [default: $NOMAD_ALLOC_DIR/data, else slots in the user's state directory]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// What the rooms of slots may reach: `off`, `open` (all public addresses), or `allow:DOMAIN,…`
    #[arg(long, value_name = "NET", default_value = "off", value_parser = crate::net::network)]
    net: NetworkPolicy,
    /// Set an environment variable of every command; may be repeated
    #[arg(long, value_name = "K=V", value_parser = arguments::variable)]
    env: Vec<(String, String)>,
    /// Another name that clients may call this server by; may be repeated
    #[arg(long, value_name = "NAME")]
    host_name: Vec<String>,
    /// Allow an address that other machines can reach: there is no token, and whoever reaches it runs commands
    #[arg(long)]
    let_anyone_run_commands: bool,
    /// How the log on stderr is written
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "json"])]
    log_format: String,
    /// Log warnings and errors only
    #[arg(long)]
    quiet: bool,
}

pub(crate) fn run(options: Options, spawner: Option<Result<Spawner, RoomError>>) -> ExitCode {
    // Everything that is made from here on is ours alone, whatever the caller's umask.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    raise_open_files();
    start_log(options.quiet, &options.log_format);
    match Plan::from_options(options).and_then(|plan| serve(plan, spawner)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            complain(&sentence);
            ExitCode::from(EXIT_FAULT)
        }
    }
}

/// From options to what will be done. Nothing is opened or started by making it.
struct Plan {
    address: SocketAddr,
    host_names: Vec<String>,
    settings: SlotSettings,
    engine: EngineConfig,
}

impl Plan {
    fn from_options(options: Options) -> Result<Plan, String> {
        let address = address(
            options.listen.as_deref(),
            (options.host.as_deref(), options.port),
            options.let_anyone_run_commands,
        )?;
        let data_dir = match options.data_dir {
            Some(dir) => dir,
            None => usual_data_dir()?,
        };
        // Rooms and what records them are found by this path long after the working directory has changed.
        let data_dir = std::path::absolute(&data_dir)
            .map_err(|error| format!("the data directory {} cannot be used: {error}", data_dir.display()))?;
        let defaults = config::load().map_err(|error| error.to_string())?.serve;
        let state = data_dir.join("state");
        let stateful_dir = state.join("output");
        let mut engine = engine_config(EngineConfig::for_machine(state, machine_memory()), &defaults)?;
        let slots = u64::from(options.slots);
        // Who asks for slots gets them.
        let quotas = &mut engine.quotas;
        quotas.live = slots + SPARE_ROOMS;
        (quotas.live_per_user, quotas.created_per_user_per_day) = (quotas.live, 0);
        engine.exec.largest_output = engine.exec.largest_output.max(LEAST_OUTPUT);
        engine.exec.longest_timeout = engine.exec.longest_timeout.max(LONGEST_TIMEOUT);
        engine.policy.network = Some(options.net);
        let settings = SlotSettings {
            slots: options.slots as usize,
            env: options.env.into_iter().collect(),
            data_dir,
            stateful_dir,
        };
        Ok(Plan { address, host_names: options.host_name, settings, engine })
    }
}

fn usual_data_dir() -> Result<PathBuf, String> {
    match std::env::var_os("NOMAD_ALLOC_DIR").filter(|dir| !dir.is_empty()) {
        Some(dir) => Ok(PathBuf::from(dir).join("data")),
        None => workroom_client::state_dir().map(|dir| dir.join("slots")).map_err(|error| error.to_string()),
    }
}

/// `--listen 127.0.0.1:8080`, or `--host` and `--port`, each with a default.
fn address(
    listen: Option<&str>,
    (host, port): (Option<&str>, Option<u16>),
    is_open_to_all: bool,
) -> Result<SocketAddr, String> {
    let port = port.unwrap_or(DEFAULT_PORT);
    let text = match (listen, host) {
        (Some(listen), _) => match listen.parse::<u16>() {
            Ok(port) => format!("{DEFAULT_HOST}:{port}"),
            Err(_) => listen.to_owned(),
        },
        (None, Some(host)) if host.contains(':') && !host.starts_with('[') => format!("[{host}]:{port}"),
        (None, host) => format!("{}:{port}", host.unwrap_or(DEFAULT_HOST)),
    };
    let found = text.to_socket_addrs().ok().and_then(|mut found| found.next()).ok_or_else(|| {
        format!("\"{text}\" is not an address; write it like --listen {DEFAULT_HOST}:{DEFAULT_PORT}")
    })?;
    if !found.ip().is_loopback() && !is_open_to_all {
        return Err(format!(
            "listening on {text} lets everybody who can reach this machine run commands in its rooms, for clients of \
             this API send no token; listen on {DEFAULT_HOST}, or give --let-anyone-run-commands"
        ));
    }
    Ok(found)
}

/// From nothing to nothing: rooms end with it, and what they have written stays.
fn serve(plan: Plan, spawner: Option<Result<Spawner, RoomError>>) -> Result<(), String> {
    let (runtime, spawner) = begin(&plan.engine.state, spawner)?;
    let served = runtime.block_on(async {
        let (tcp, addresses) = listen_tcp(&[plan.address]).await?;
        let mut signals = Signals::new()?;
        let engine = Engine::open(plan.engine, addresses.clone(), spawner)
            .await
            .map_err(|problem| problem.to_string())?;
        let server =
            SlotServer::open(engine.clone(), plan.settings).await.map_err(|problem| problem.to_string())?;
        announce(&addresses);
        let listeners = Listeners { tcp, unix: Vec::new() };
        server
            .run(listeners, plan.host_names, async {
                let signal = signals.next().await;
                tracing::info!(signal, "ending, and all rooms with it");
                // From here on the next one ends us at once; the next server ends the rooms.
                tokio::spawn(async move {
                    signals.next().await;
                    std::process::exit(0);
                });
            })
            .await;
        engine.shut_down().await;
        Ok(())
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    served
}

/// A word that programs read. It comes when requests are answered, and not before.
fn announce(addresses: &[SocketAddr]) {
    let mut stdout = std::io::stdout();
    let text: String = addresses.iter().map(|address| format!("listening http://{address}\n")).collect();
    // A server whose starter does not listen serves all the same.
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_said_in_one_word_or_in_two() {
        let said =
            |listen, host, port| address(listen, (host, port), false).map(|address| address.to_string());
        for (listen, host, port, expected) in [
            (None, None, None, "127.0.0.1:8080"),
            (Some("127.0.0.1:0"), None, None, "127.0.0.1:0"),
            (Some("9000"), None, None, "127.0.0.1:9000"),
            (None, Some("127.0.0.2"), None, "127.0.0.2:8080"),
            (None, None, Some(81), "127.0.0.1:81"),
            (None, Some("::1"), Some(82), "[::1]:82"),
        ] {
            assert_eq!(said(listen, host, port).as_deref(), Ok(expected));
        }
        assert!(said(Some("nonsense"), None, None).is_err());
    }

    #[test]
    fn without_a_token_only_loopback_is_listened_on_unless_the_risk_is_named() {
        let refused = address(None, (Some("0.0.0.0"), None), false).expect_err("everybody");
        assert!(refused.contains("--let-anyone-run-commands"), "{refused}");
        let allowed = address(None, (Some("0.0.0.0"), None), true).expect("an address");
        assert_eq!(allowed.to_string(), "0.0.0.0:8080");
    }
}
