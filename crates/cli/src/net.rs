//! `workroom net`: what a session's network did, what it would have needed, and opening it.

use crate::output::{self, clean, sheet};
use crate::remote::{Failure, perform};
use crate::table::Table;
use crate::which;
use std::net::IpAddr;
use std::process::ExitCode;
use workroom_client::Client;
use workroom_types::{
    NetworkConnection, NetworkMode, NetworkPolicy, NetworkProposal, NetworkVerdict, NetworkView, PolicyView,
    PortRule, Timestamp, format_bytes,
};

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  workroom net show build\n  workroom net log build -n 20\n  workroom net allow build pypi.org files.pythonhosted.org\n  workroom net learn build"
)]
pub(crate) struct Options {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Args)]
struct Which {
    /// The session: its id, the beginning of it, or its name
    #[arg(value_name = "SESSION")]
    session: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Show what holds, how much passed, and what was refused
    #[command(after_help = "Example:\n  workroom net show build")]
    Show(Which),
    /// List the newest connections, oldest first
    #[command(after_help = "Example:\n  workroom net log build -n 20")]
    Log {
        #[command(flatten)]
        which: Which,
        /// How many
        #[arg(short = 'n', long, value_name = "N", default_value_t = 100, value_parser = lines, allow_hyphen_values = true)]
        lines: usize,
    },
    /// Let a session reach more: names, `*.names`, and addresses or ranges; at once
    #[command(after_help = "Example:\n  workroom net allow build pypi.org '*.example.org' 10.1.2.3/32")]
    Allow {
        #[command(flatten)]
        which: Which,
        /// Names or addresses
        #[arg(value_name = "DOMAIN", required = true)]
        targets: Vec<String>,
    },
    /// Let a session reach all public addresses, or nothing, at once
    #[command(after_help = "Example:\n  workroom net set build open\n  workroom net set build off")]
    Set {
        #[command(flatten)]
        which: Which,
        /// `off`, `open` or `allow:DOMAIN,…`
        #[arg(value_name = "NET", value_parser = network)]
        network: NetworkPolicy,
    },
    /// Propose the allow-list that all that a session has tried to reach would need
    #[command(after_help = "Example:\n  workroom net learn build > policy.toml")]
    Learn(Which),
}

fn lines(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| *number <= 1000).ok_or_else(|| "it is a number up to 1000".to_owned())
}

/// `off`, `open`, or `allow:` with names and addresses.
pub(crate) fn network(text: &str) -> Result<NetworkPolicy, String> {
    let mode = |mode| NetworkPolicy { mode, ..NetworkPolicy::default() };
    match text {
        "off" | "none" => Ok(mode(NetworkMode::Off)),
        "open" => Ok(mode(NetworkMode::Open)),
        _ => match text.strip_prefix("allow:") {
            Some(targets) if !targets.is_empty() => {
                let mut policy = mode(NetworkMode::Allow);
                targets.split(',').for_each(|target| add(&mut policy, target));
                Ok(policy)
            }
            _ => Err("it is off, open, or allow:DOMAIN,… such as allow:pypi.org,*.example.org".to_owned()),
        },
    }
}

/// Names go to the domains, addresses and ranges to the cidrs; the server judges both.
fn add(policy: &mut NetworkPolicy, target: &str) {
    let is_range = target.contains('/') || target.parse::<IpAddr>().is_ok();
    let list = if is_range { &mut policy.cidrs } else { &mut policy.domains };
    if !list.iter().any(|known| known == target) {
        list.push(target.to_owned());
    }
}

pub(crate) fn run(options: Options) -> ExitCode {
    let (which, verb) = match &options.verb {
        Verb::Show(which) | Verb::Learn(which) => (which, &options.verb),
        Verb::Log { which, .. } | Verb::Allow { which, .. } | Verb::Set { which, .. } => {
            (which, &options.verb)
        }
    };
    let json = which.json;
    perform(json, async |client| {
        let id = which::session(&client, &which.session).await?;
        match verb {
            Verb::Show(_) => {
                let view = client.network(&id, Some(0)).await?;
                if json { output::json(&view)? } else { output::text(&page(&view))? }
            }
            Verb::Log { lines, .. } => {
                let view = client.network(&id, Some(*lines)).await?;
                if json { output::json(&view.connections)? } else { output::text(&log(&view.connections))? }
            }
            Verb::Allow { targets, .. } => {
                let view = client.policy(&id).await?;
                let network = allowed(&view, targets)?;
                changed(&client, &id, view, network, json).await?;
            }
            Verb::Set { network, .. } => {
                let view = client.policy(&id).await?;
                changed(&client, &id, view, network.clone(), json).await?;
            }
            Verb::Learn(_) => {
                let proposal = client.network_proposal(&id).await?;
                if json { output::json(&proposal)? } else { output::text(&toml(&proposal))? }
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// What holds, with more in it.
fn allowed(view: &PolicyView, targets: &[String]) -> Result<NetworkPolicy, Failure> {
    let mut network = view.effective.network.clone().unwrap_or_default();
    match network.mode {
        NetworkMode::Off => network = NetworkPolicy { mode: NetworkMode::Allow, ..NetworkPolicy::default() },
        NetworkMode::Allow => {}
        NetworkMode::Open if targets.iter().any(|target| !target.contains('/')) => {
            return Err(Failure::problem(
                "the session's network is open: every name may be reached already",
                "`workroom net set SESSION allow:DOMAIN,…` narrows it",
            ));
        }
        NetworkMode::Open => {}
    }
    targets.iter().for_each(|target| add(&mut network, target));
    Ok(network)
}

async fn changed(
    client: &Client,
    id: &str,
    view: PolicyView,
    network: NetworkPolicy,
    json: bool,
) -> Result<(), Failure> {
    let mut policy = view.policy;
    policy.network = Some(network);
    // Not over what somebody else has changed meanwhile.
    let view = client.set_policy(id, &policy, Some(view.version)).await?;
    if json {
        return output::json(&view);
    }
    let network = view.effective.network.unwrap_or_default();
    output::line(&rules(&network))
}

fn word(mode: NetworkMode) -> &'static str {
    match mode {
        NetworkMode::Off => "off",
        NetworkMode::Allow => "allow",
        NetworkMode::Open => "open",
    }
}

/// A policy in one line.
fn rules(network: &NetworkPolicy) -> String {
    let mut words = vec![word(network.mode).to_owned()];
    words.extend(network.domains.iter().chain(&network.cidrs).map(|target| clean(target).into_owned()));
    if let Some(ports) = &network.ports {
        let ports: Vec<String> = ports.iter().map(port).collect();
        words.push(format!("ports {}", ports.join(", ")));
    }
    words.join("  ")
}

fn port(rule: &PortRule) -> String {
    match rule {
        PortRule::Number(number) => number.to_string(),
        PortRule::Range(range) => clean(range).into_owned(),
    }
}

fn page(view: &NetworkView) -> String {
    let totals = &view.totals;
    let way = match (view.connected, view.transparent) {
        (false, _) => "none".to_owned(),
        (true, true) => format!("proxy {} and transparent", view.proxy.as_deref().unwrap_or_default()),
        (true, false) => format!("proxy {}", view.proxy.as_deref().unwrap_or_default()),
    };
    let mut rows = vec![("mode", word(view.mode).to_owned()), ("way out", way)];
    rows.extend(view.reason.iter().map(|reason| ("missing", clean(reason).into_owned())));
    rows.push(("sent", format_bytes(totals.sent)));
    rows.push(("received", format_bytes(totals.received)));
    rows.push((
        "connections",
        format!("{} made, {} open, {} failed, {} cut", totals.opened, totals.open, totals.failed, totals.cut),
    ));
    rows.push(("denied", totals.denied.to_string()));
    let mut page = sheet(&rows);
    if !view.denials.is_empty() {
        let mut table = Table::new(&["count", "denied"]);
        for denial in &view.denials {
            table.row([&denial.count.to_string(), &*clean(&denial.detail)]);
        }
        page.push('\n');
        page.push_str(&table.to_string());
    }
    page
}

fn log(connections: &[NetworkConnection]) -> String {
    let mut table = Table::new(&["ago", "target", "verdict", "sent", "received", "rule"]);
    let now = Timestamp::now();
    for one in connections {
        let verdict = match one.verdict {
            NetworkVerdict::Open => "open",
            NetworkVerdict::Allowed => "allowed",
            NetworkVerdict::Denied => "denied",
            NetworkVerdict::Cut => "cut",
            NetworkVerdict::Failed => "failed",
        };
        table.row([
            &output::ago(now, one.started),
            &format!("{}:{}", clean(&one.host), one.port),
            verdict,
            &format_bytes(one.sent),
            &format_bytes(one.received),
            &*clean(&one.rule),
        ]);
    }
    table.to_string()
}

/// A policy document as `workroom policy --set` takes it; what it leaves out is said in comments.
fn toml(proposal: &NetworkProposal) -> String {
    let quoted = |texts: &[String]| {
        let all: Vec<String> = texts.iter().map(|text| format!("\"{}\"", clean(text))).collect();
        format!("[{}]", all.join(", "))
    };
    let network = &proposal.network;
    let mut text = format!("[network]\nmode = \"{}\"\n", word(network.mode));
    if !network.domains.is_empty() {
        text.push_str(&format!("domains = {}\n", quoted(&network.domains)));
    }
    if let Some(ports) = &network.ports {
        let ports: Vec<String> = ports
            .iter()
            .map(|rule| match rule {
                PortRule::Number(number) => number.to_string(),
                PortRule::Range(range) => format!("\"{}\"", clean(range)),
            })
            .collect();
        text.push_str(&format!("ports = [{}]\n", ports.join(", ")));
    }
    if !network.cidrs.is_empty() {
        text.push_str(&format!("cidrs = {}\n", quoted(&network.cidrs)));
    }
    for one in &proposal.left_out {
        text.push_str(&format!("# left out: {}:{}, {}\n", clean(&one.host), one.port, clean(&one.why)));
    }
    if proposal.overlooked > 0 {
        text.push_str(&format!("# {} more wishes are not remembered\n", proposal.overlooked));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_written_in_a_word() {
        assert_eq!(network("off").map(|policy| policy.mode), Ok(NetworkMode::Off));
        assert_eq!(network("open").map(|policy| policy.mode), Ok(NetworkMode::Open));
        let some = network("allow:a.example,*.b.example,10.0.0.0/8,192.0.2.1").expect("a policy");
        assert_eq!(some.domains, ["a.example", "*.b.example"]);
        assert_eq!(some.cidrs, ["10.0.0.0/8", "192.0.2.1"]);
        for wrong in ["", "allow", "allow:", "all"] {
            assert!(network(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_proposal_is_a_document_that_can_be_set() {
        let proposal = NetworkProposal {
            network: NetworkPolicy {
                mode: NetworkMode::Allow,
                domains: vec!["a.example".into()],
                ports: Some(vec![PortRule::Number(443), PortRule::Range("8000-8100".into())]),
                cidrs: vec!["192.0.2.1/32".into()],
            },
            ..NetworkProposal::default()
        };
        let read = workroom_engine::policy_from_toml(&toml(&proposal)).expect("a policy");
        assert_eq!(read.network, Some(proposal.network));
    }
}
