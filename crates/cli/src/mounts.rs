//! `workroom mounts`, `mount` and `unmount`: directories of the host that sessions may have, and have.

use crate::output::{self, clean};
use crate::remote::{Failure, perform};
use crate::table::Table;
use crate::which;
use std::process::ExitCode;
use workroom_client::Client;
use workroom_types::{AddMounts, MountKind, MountMode, MountRequest, MountState, SessionMount};

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  workroom mounts\n  workroom mounts build")]
pub(crate) struct List {
    /// The session: its id, the beginning of it, or its name [default: what your sessions may have]
    #[arg(value_name = "SESSION")]
    session: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  workroom mount build src=projects/website data=datasets:ro out=projects/out:rw"
)]
pub(crate) struct Mount {
    /// The session: its id, the beginning of it, or its name
    #[arg(value_name = "SESSION")]
    session: String,
    /// What to mount at /workspace/ALIAS: a base, or a directory beneath it; read-only unless :rw follows
    #[arg(value_name = "ALIAS=BASE[/SUB][:rw]", required = true, value_parser = mount_request)]
    mounts: Vec<MountRequest>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[command(after_help = "Example:\n  workroom unmount build src")]
pub(crate) struct Unmount {
    /// The session: its id, the beginning of it, or its name
    #[arg(value_name = "SESSION")]
    session: String,
    /// What it is called in /workspace
    #[arg(value_name = "ALIAS", required = true)]
    aliases: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// `ALIAS=BASE[/SUB][:ro|:rw]`. Whether it may be had is the server's to say.
pub(crate) fn mount_request(text: &str) -> Result<MountRequest, String> {
    let wrong = || "write it like src=projects/website, or src=projects/website:rw".to_owned();
    let (alias, from) = text.split_once('=').ok_or_else(wrong)?;
    let (from, mode) = match from.rsplit_once(':') {
        Some((from, "rw")) => (from, MountMode::Rw),
        Some((from, "ro")) => (from, MountMode::Ro),
        _ => (from, MountMode::Ro),
    };
    let (base, subpath) = from.split_once('/').unwrap_or((from, ""));
    if alias.is_empty() || base.is_empty() {
        return Err(wrong());
    }
    Ok(MountRequest { alias: alias.into(), base: base.into(), subpath: subpath.into(), mode })
}

pub(crate) fn list(options: List) -> ExitCode {
    perform(options.json, async |client| {
        match &options.session {
            Some(session) => {
                let id = which::session(&client, session).await?;
                let found = client.mounts(&id).await?;
                if options.json { output::json(&found)? } else { output::text(&table(&found.mounts))? }
            }
            None => offer(&client, options.json).await?,
        }
        Ok(ExitCode::SUCCESS)
    })
}

pub(crate) fn mount(options: Mount) -> ExitCode {
    perform(options.json, async |client| {
        let id = which::session(&client, &options.session).await?;
        let made = client.add_mounts(&id, &AddMounts { mounts: options.mounts }).await?;
        if options.json {
            output::json(&made)?
        } else {
            output::text(&table(&made.mounts))?
        }
        Ok(ExitCode::SUCCESS)
    })
}

pub(crate) fn unmount(options: Unmount) -> ExitCode {
    perform(options.json, async |client| {
        let id = which::session(&client, &options.session).await?;
        for alias in &options.aliases {
            client.remove_mount(&id, alias).await?;
            if !options.json {
                output::line(&format!("{}  unmounted", clean(alias)))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

async fn offer(client: &Client, json: bool) -> Result<(), Failure> {
    let offer = client.mount_offer().await?;
    if json {
        return output::json(&offer);
    }
    if !offer.enabled {
        return output::line("the operator of this server offers no mounts");
    }
    let mut table = Table::new(&["what", "name", "mode", "on the host", "gives"]);
    for mount in &offer.given {
        let host = mount.host_path.as_deref().unwrap_or("-");
        let note = if mount.required { "required" } else { "-" };
        table.row([kind(mount.kind), &clean(&mount.place), mode(mount.mode), &clean(host), note]);
    }
    for base in &offer.bases {
        let host = base.host_path.as_deref().unwrap_or("-");
        let mut gives = if base.allow.is_empty() { "everything".to_owned() } else { base.allow.join(" ") };
        if !base.block.is_empty() {
            gives = format!("{gives}, not {}", base.block.join(" "));
        }
        table.row(["base", &clean(&base.name), mode(base.max_mode), &clean(host), &clean(&gives)]);
    }
    output::text(&table.to_string())
}

fn table(mounts: &[SessionMount]) -> String {
    let mut table = Table::new(&["place", "what", "mode", "state", "on the host"]);
    for mount in mounts {
        let state = match (mount.state, &mount.reason) {
            (MountState::Mounted, _) => "mounted".to_owned(),
            (MountState::Waiting, _) => "waiting".to_owned(),
            (MountState::Missing, reason) => {
                format!("missing: {}", clean(reason.as_deref().unwrap_or_default()))
            }
        };
        let host = clean(mount.host_path.as_deref().unwrap_or("-"));
        table.row([&clean(&mount.place), kind(mount.kind), mode(mount.mode), &state, &host]);
    }
    table.to_string()
}

fn kind(kind: MountKind) -> &'static str {
    match kind {
        MountKind::External => "external",
        MountKind::Persistent => "persistent",
        MountKind::Dynamic => "dynamic",
        MountKind::Original => "original",
    }
}

fn mode(mode: MountMode) -> &'static str {
    match mode {
        MountMode::Ro => "ro",
        MountMode::Rw => "rw",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_an_alias_and_where_it_is_from() {
        let asked = |text: &str| {
            let request = mount_request(text)?;
            Ok::<_, String>((request.alias, request.base, request.subpath, request.mode))
        };
        let of = |alias: &str, base: &str, sub: &str, mode| {
            Ok((alias.to_owned(), base.to_owned(), sub.to_owned(), mode))
        };
        assert_eq!(asked("a=b"), of("a", "b", "", MountMode::Ro));
        assert_eq!(asked("a=b:ro"), of("a", "b", "", MountMode::Ro));
        assert_eq!(asked("a=b/c/d:rw"), of("a", "b", "c/d", MountMode::Rw));
        assert_eq!(asked("a=b/c:d"), of("a", "b", "c:d", MountMode::Ro));
        for wrong in ["", "a", "=b", "a=", "a=:rw", "a=/b"] {
            assert!(mount_request(wrong).is_err(), "{wrong}");
        }
    }
}
