//! `workroom create`: a new session.

use crate::remote::{Failure, complain, perform};
use crate::{arguments, output, seed};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use workroom_types::{
    Channel, CreateSession, MountRequest, NetworkPolicy, OnExpiry, Policy, parse_bytes, parse_cpus,
    parse_duration,
};

#[derive(clap::Args)]
#[command(after_help = "Example:\n  \
    id=$(workroom create --name build --label team=search --idle-timeout 30m)\n  \
    workroom exec $id -c 'make test'")]
pub(crate) struct Options {
    /// A name for people, up to 120 characters
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// A label to find it by; may be repeated
    #[arg(long = "label", value_name = "K=V", value_parser = arguments::label)]
    labels: Vec<(String, String)>,
    /// With an admin token: whose session it is
    #[arg(long, value_name = "OWNER")]
    owner: Option<String>,
    /// Your own key: the same owner and key give the same session again
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// The group that it belongs to
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// The chat channel that it belongs to
    #[arg(long, value_name = "TYPE:ID", value_parser = arguments::channel)]
    channel: Option<Channel>,
    /// The thread that it belongs to
    #[arg(long, value_name = "THREAD")]
    thread: Option<String>,
    /// End it this long after now (90s, 1h, 7d) [default: never]
    #[arg(long, value_name = "TIME", value_parser = arguments::seconds, allow_hyphen_values = true)]
    ttl: Option<u64>,
    /// End it after this long without a request and without work [default: never]
    #[arg(long, value_name = "TIME", value_parser = arguments::seconds, allow_hyphen_values = true)]
    idle_timeout: Option<u64>,
    /// What the end of its time means [default: stop]
    #[arg(long, value_name = "WHAT", value_parser = ["stop", "pause", "delete"])]
    on_expiry: Option<String>,
    /// Count a quiet process, such as a server that waits, as work
    #[arg(long)]
    keep_alive: bool,
    /// What it may see, reach, use and know: a file, TOML or JSON; `-` for standard input. Options go before it
    #[arg(long, value_name = "FILE")]
    policy: Option<String>,
    /// Memory of all processes together (512M, 2G)
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, allow_hyphen_values = true)]
    memory: Option<u64>,
    /// CPU time, in CPUs (0.5, 2)
    #[arg(long, value_name = "N", value_parser = parse_cpus, allow_hyphen_values = true)]
    cpus: Option<u64>,
    /// Processes and threads
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pids: Option<u64>,
    /// Bytes that it may write outside its mounts (500M, 10G)
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, allow_hyphen_values = true)]
    disk: Option<u64>,
    /// Files and directories that it may make there
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    inodes: Option<u64>,
    /// Keep what it writes in memory, for as long as its room: --disk and --inodes then hold without root
    #[arg(long)]
    ephemeral: bool,
    /// What it may reach: `off`, `open` (all public addresses), or `allow:DOMAIN,…` [default: the server's]
    #[arg(long, value_name = "NET", value_parser = crate::net::network)]
    net: Option<NetworkPolicy>,
    /// Refuse to start a room unless these layers hold (see `workroom doctor`)
    #[arg(long, value_name = "LAYER", value_delimiter = ',')]
    require: Vec<String>,
    /// Start rooms even if the machine lacks these layers
    #[arg(long, value_name = "LAYER", value_delimiter = ',')]
    allow_missing: Vec<String>,
    /// Mount a directory of the host at /workspace/ALIAS, beneath a base that the operator offers (see
    /// `workroom mounts`); may be repeated
    #[arg(long = "mount", value_name = "ALIAS=BASE[/SUB][:rw]", value_parser = crate::mounts::mount_request)]
    mounts: Vec<MountRequest>,
    /// Begin with these files: a directory, an archive or a git bundle of this machine
    #[arg(long, value_name = "PATH", conflicts_with = "no_start")]
    seed: Option<PathBuf>,
    /// Make it stopped; its room comes with the first call that needs one
    #[arg(long)]
    no_start: bool,
    /// Queue up to this long when a quota is reached [default: be refused at once]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, allow_hyphen_values = true)]
    wait: Option<Duration>,
    /// Print the session as JSON instead of its id
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: Options) -> ExitCode {
    let as_json = options.json;
    perform(as_json, async |client| {
        let (wait, seed) = (options.wait, options.seed.clone());
        let (mut session, is_new) = client.create(&request(options)?, wait).await?;
        // One that was there under its key has its files.
        if let Some(seed) = seed.filter(|_| is_new) {
            session = seed::plant(&client, &session, &seed).await?;
        }
        if as_json {
            output::json(&session)?;
        } else {
            output::line(&session.id)?;
            // The id is there to be used; what is wrong with the session is not its reader's to parse.
            if let Some(reason) = &session.reason {
                complain(&format!("the session is {}: {reason}", session.state.as_str()));
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn request(options: Options) -> Result<CreateSession, Failure> {
    let from_file = options.policy.as_deref().map(crate::policy::read).transpose()?.unwrap_or_default();
    let said = Policy {
        memory: options.memory,
        cpus_milli: options.cpus,
        pids: options.pids,
        disk: options.disk,
        inodes: options.inodes,
        ephemeral: options.ephemeral.then_some(true),
        network: options.net,
        require: named_layers("--require", options.require)?,
        allow_missing: named_layers("--allow-missing", options.allow_missing)?,
        ..Policy::default()
    };
    let mut policy = said.over(&from_file);
    if !options.mounts.is_empty() {
        policy.mounts.get_or_insert_default().dynamic.extend(options.mounts);
    }
    let on_expiry = options.on_expiry.map(|what| match what.as_str() {
        "pause" => OnExpiry::Pause,
        "delete" => OnExpiry::Delete,
        _ => OnExpiry::Stop,
    });
    Ok(CreateSession {
        name: options.name,
        labels: options.labels.into_iter().collect(),
        owner: options.owner,
        key: options.key,
        group: options.group,
        channel: options.channel,
        thread: options.thread,
        template: None,
        policy: (policy != Policy::default()).then_some(policy),
        ttl: options.ttl,
        idle_timeout: options.idle_timeout,
        on_expiry,
        keep_alive: options.keep_alive.then_some(true),
        start: options.no_start.then_some(false),
    })
}

fn named_layers(option: &str, names: Vec<String>) -> Result<Vec<String>, Failure> {
    match crate::plan::layers(option, &names) {
        Ok(_) => Ok(names),
        Err(error) => Err(Failure::problem(error.detail, error.hint)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        options: Options,
    }

    fn parsed(words: &[&str]) -> CreateSession {
        let words = std::iter::once("create").chain(words.iter().copied());
        request(Only::try_parse_from(words).unwrap_or_else(|error| panic!("{error}")).options).unwrap()
    }

    #[test]
    fn nothing_said_is_nothing_asked() {
        assert_eq!(parsed(&[]), CreateSession::default());
    }

    #[test]
    fn what_is_said_is_asked() {
        let request = parsed(&[
            "--name",
            "build",
            "--label=a=1",
            "--label=b=2",
            "--ttl=1h",
            "--idle-timeout=90s",
            "--on-expiry=delete",
            "--keep-alive",
            "--memory=512M",
            "--cpus=0.5",
            "--no-start",
            "--channel=slack:C1",
            "--allow-missing=landlock,scope",
        ]);
        assert_eq!(request.name.as_deref(), Some("build"));
        assert_eq!(request.labels.len(), 2);
        assert_eq!((request.ttl, request.idle_timeout), (Some(3600), Some(90)));
        assert_eq!((request.on_expiry, request.keep_alive), (Some(OnExpiry::Delete), Some(true)));
        assert_eq!(request.start, Some(false));
        let policy = request.policy.unwrap();
        assert_eq!((policy.memory, policy.cpus_milli, policy.pids), (Some(512 << 20), Some(500), None));
        assert_eq!(policy.allow_missing, ["landlock", "scope"]);
        assert_eq!(request.channel.unwrap().platform_id, "C1");
    }
}
