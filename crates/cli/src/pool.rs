//! `workroom pool`: pools of slots, set, shown and deleted; slots acquired, extended, reset and released.

use crate::output::clean;
use crate::remote::{Failure, perform};
use crate::table::Table;
use crate::{arguments, output, which};
use std::process::ExitCode;
use workroom_client::{Client, PoolName};
use workroom_types::{
    AcquireSlot, ExtendLease, Lease, Policy, Pool, PoolCheck, PoolList, PoolReset, PoolSeed, PoolSpec,
    Timestamp, parse_bytes, parse_cpus,
};

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  workroom pool set agents --min 2 --max 16\n  \
                  session=$(workroom pool acquire agents run-7)\n  workroom exec $session -- make test\n  \
                  workroom pool release agents run-7")]
pub(crate) struct Options {
    /// With an admin token: whose pool
    #[arg(long, value_name = "OWNER", global = true)]
    owner: Option<String>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Make a pool, or change one to be as said here
    Set(Box<Set>),
    /// List the pools
    Ls {
        /// Print JSON: {"pools": […]}
        #[arg(long)]
        json: bool,
    },
    /// Show a pool, its slots and its numbers
    Show(Named),
    /// Delete a pool, with all its slots
    Rm(Named),
    /// Acquire a slot for a trajectory and print the session to work in
    Acquire(Acquire),
    /// Release the slot of a trajectory
    Release(Held),
    /// Let the lease of a trajectory end later, or sooner
    Extend(Extend),
    /// Make the slot of a trajectory as new and print its new session
    Reset(Held),
}

#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  workroom pool set agents --max 64 --seed build@ready --memory 1G --idle 10m"
)]
struct Set {
    /// What to call it: up to 64 letters, digits, '.', '_' and '-'
    #[arg(value_name = "NAME")]
    name: String,
    /// Slots that are always there [default: 0]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    min: Option<u32>,
    /// The most slots at once
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    max: u32,
    /// When a slot beyond --min that nobody wants goes [default: 5m]
    #[arg(long, value_name = "TIME", value_parser = arguments::seconds, allow_hyphen_values = true)]
    idle: Option<u64>,
    /// The files that every trajectory finds: a session, as it is or at a snapshot
    #[arg(long, value_name = "SESSION[@SNAPSHOT]")]
    seed: Option<String>,
    /// Memory of each room, such as 512M
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, allow_hyphen_values = true)]
    memory: Option<u64>,
    /// CPUs of each room, such as 1.5
    #[arg(long, value_name = "N", value_parser = parse_cpus, allow_hyphen_values = true)]
    cpus: Option<u64>,
    /// Processes and threads of each room
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pids: Option<u64>,
    /// Rooms that are ready beside the slots, for those that are released
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    spares: Option<u32>,
    /// What is looked at before a room is handed out [default: layers]
    #[arg(long, value_name = "WHAT", value_parser = ["layers", "digest"])]
    check: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct Named {
    #[arg(value_name = "NAME")]
    name: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct Held {
    #[arg(value_name = "NAME")]
    name: String,
    /// Whoever has the slot: any text
    #[arg(value_name = "TRAJECTORY")]
    trajectory: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[command(after_help = "Example:\n  workroom pool acquire agents run-7 --wait 1m --lease 30m")]
struct Acquire {
    #[command(flatten)]
    held: Held,
    /// How long to wait for one [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = arguments::milliseconds, allow_hyphen_values = true)]
    wait: Option<u64>,
    /// How long it is the trajectory's own [default: 10m]
    #[arg(long, value_name = "TIME", value_parser = arguments::milliseconds, allow_hyphen_values = true)]
    lease: Option<u64>,
}

#[derive(clap::Args)]
#[command(after_help = "Example:\n  workroom pool extend agents run-7 30m")]
struct Extend {
    #[command(flatten)]
    held: Held,
    /// From now on
    #[arg(value_name = "TIME", value_parser = arguments::milliseconds)]
    lease: u64,
}

impl Verb {
    fn json(&self) -> bool {
        match self {
            Verb::Set(options) => options.json,
            Verb::Ls { json } => *json,
            Verb::Show(options) | Verb::Rm(options) => options.json,
            Verb::Release(held) | Verb::Reset(held) => held.json,
            Verb::Acquire(Acquire { held, .. }) | Verb::Extend(Extend { held, .. }) => held.json,
        }
    }
}

pub(crate) fn run(options: Options) -> ExitCode {
    let json = options.verb.json();
    let owner = options.owner.as_deref();
    perform(json, async |client| {
        match options.verb {
            Verb::Set(set) => {
                let name = PoolName { owner, name: &set.name };
                let (pool, is_new) = client.set_pool(name, &spec(&client, &set).await?).await?;
                if json {
                    output::json(&pool)?;
                } else {
                    output::line(&format!("{}  {}", set.name, if is_new { "made" } else { "set" }))?;
                }
            }
            Verb::Ls { .. } => {
                let list = client.pools(owner).await?;
                if json { output::json(&list)? } else { output::text(&table(&list))? }
            }
            Verb::Show(Named { name, .. }) => {
                let pool = client.pool(PoolName { owner, name: &name }).await?;
                if json { output::json(&pool)? } else { output::text(&sheet(&pool, Timestamp::now()))? }
            }
            Verb::Rm(Named { name, .. }) => {
                client.delete_pool(PoolName { owner, name: &name }).await?;
                if !json {
                    output::line(&format!("{name}  deleted"))?;
                }
            }
            Verb::Acquire(Acquire { held, wait, lease }) => {
                let request = AcquireSlot { trajectory: held.trajectory, wait_ms: wait, lease_ms: lease };
                tell(&client.acquire(PoolName { owner, name: &held.name }, &request).await?, json)?;
            }
            Verb::Extend(Extend { held, lease }) => {
                let request = ExtendLease { trajectory: held.trajectory, lease_ms: lease };
                tell(&client.extend(PoolName { owner, name: &held.name }, &request).await?, json)?;
            }
            Verb::Reset(held) => {
                let name = PoolName { owner, name: &held.name };
                tell(&client.reset_slot(name, &held.trajectory).await?, json)?;
            }
            Verb::Release(held) => {
                let name = PoolName { owner, name: &held.name };
                let released = client.release(name, &held.trajectory).await?;
                if json {
                    output::json(&workroom_types::Released { released })?;
                } else {
                    let what = if released { "released" } else { "had no slot" };
                    output::line(&format!("{}  {what}", clean(&held.trajectory)))?;
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn tell(lease: &Lease, json: bool) -> Result<(), Failure> {
    if json { output::json(lease) } else { output::line(&lease.session) }
}

async fn spec(client: &Client, set: &Set) -> Result<PoolSpec, Failure> {
    let seed = match set.seed.as_deref() {
        Some(text) => {
            let (session, snapshot) = match text.split_once('@') {
                Some((session, snapshot)) => (session, Some(snapshot.to_owned())),
                None => (text, None),
            };
            Some(PoolSeed { session: which::session(client, session).await?, snapshot })
        }
        None => None,
    };
    let policy = Policy { memory: set.memory, cpus_milli: set.cpus, pids: set.pids, ..Policy::default() };
    let check = if set.check.as_deref() == Some("digest") { PoolCheck::Digest } else { PoolCheck::Layers };
    let has_reset = set.check.is_some() || set.spares.is_some();
    Ok(PoolSpec {
        template: None,
        policy: Some(policy).filter(|policy| *policy != Policy::default()),
        seed,
        min: set.min,
        max: set.max,
        idle: set.idle,
        reset: has_reset.then_some(PoolReset { check, spares: set.spares }),
    })
}

fn table(list: &PoolList) -> String {
    let mut table = Table::new(&[
        "name",
        "owner",
        "slots",
        "available",
        "in use",
        "resetting",
        "error",
        "waiting",
        "reset p50",
    ]);
    for pool in &list.pools {
        let states = &pool.states;
        table.row([
            pool.name.as_str(),
            &clean(&pool.owner),
            &format!("{}/{}", states.all(), pool.spec.max),
            &states.available.to_string(),
            &(states.acquired + states.executing).to_string(),
            &states.resetting.to_string(),
            &states.error.to_string(),
            &pool.waiting.to_string(),
            &format!("{:.1} ms", pool.metrics.reset_ms_p50),
        ]);
    }
    table.to_string()
}

fn sheet(pool: &Pool, now: Timestamp) -> String {
    let (summary, metrics) = (&pool.summary, &pool.summary.metrics);
    let spec = &summary.spec;
    let seed = spec.seed.as_ref().map_or("none".into(), |seed| match &seed.snapshot {
        Some(snapshot) => format!("{}@{snapshot}", seed.session),
        None => seed.session.clone(),
    });
    let rows = [
        ("name", summary.name.clone()),
        ("owner", clean(&summary.owner).into_owned()),
        ("slots", format!("{} (from {} to {})", summary.states.all(), spec.min.unwrap_or(0), spec.max)),
        ("seed", seed),
        ("spares", summary.spares.to_string()),
        ("waiting", summary.waiting.to_string()),
        ("in use", format!("{:.0} %", metrics.utilisation * 100.0)),
        (
            "leases",
            format!(
                "{} begun, {} released, {} ended by themselves",
                metrics.acquired, metrics.released, metrics.expired
            ),
        ),
        ("refused", metrics.refused.to_string()),
        ("failures", metrics.failures.to_string()),
        ("wait", format!("{:.2} ms p50, {:.2} ms p99", metrics.wait_ms_p50, metrics.wait_ms_p99)),
        ("reset", format!("{:.2} ms p50, {:.2} ms p99", metrics.reset_ms_p50, metrics.reset_ms_p99)),
    ];
    let mut slots = Table::new(&["slot", "state", "session", "trajectory", "lease", "uses", "reason"]);
    for slot in &pool.slots {
        let left =
            slot.lease_end.map_or(String::new(), |end| output::span(((end.0 - now.0).max(0) / 1000) as u64));
        slots.row([
            slot.slot.to_string().as_str(),
            slot.state.as_str(),
            slot.session.as_deref().unwrap_or_default(),
            &clean(slot.trajectory.as_deref().unwrap_or_default()),
            &left,
            &slot.uses.to_string(),
            &clean(slot.reason.as_deref().unwrap_or_default()),
        ]);
    }
    format!("{}\n{slots}", output::sheet(&rows))
}
