//! `workroom snapshot`: take, list and delete snapshots of a session; show it among its relatives.

use crate::remote::{Failure, perform};
use crate::table::Table;
use crate::{output, which};
use std::process::ExitCode;
use workroom_client::Client;
use workroom_types::{Lineage, LineageNode, SnapshotList, TakeSnapshot, Timestamp, format_bytes};

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  workroom snapshot build before-upgrade\n  workroom snapshot build --list"
)]
pub(crate) struct Options {
    /// The session: its id, the beginning of it, or its name
    #[arg(value_name = "SESSION")]
    session: String,
    /// What to call it [default: a name from the time]
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// List the snapshots that there are
    #[arg(long, conflicts_with_all = ["name", "rm", "tree"])]
    list: bool,
    /// Delete this one
    #[arg(long, value_name = "NAME", conflicts_with_all = ["name", "tree"])]
    rm: Option<String>,
    /// Show the session among its forks and ancestors
    #[arg(long, conflicts_with = "name")]
    tree: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: Options) -> ExitCode {
    perform(options.json, async |client| {
        let id = which::session(&client, &options.session).await?;
        if options.list {
            list(&client, &id, options.json).await?;
        } else if options.tree {
            tree(&client, &id, options.json).await?;
        } else if let Some(name) = &options.rm {
            client.delete_snapshot(&id, name).await?;
            if !options.json {
                output::line(&format!("{name}  deleted"))?;
            }
        } else {
            let request = TakeSnapshot { name: options.name.clone() };
            let taken = client.take_snapshot(&id, &request).await?;
            if options.json {
                output::json(&taken)?;
            } else {
                let pause = match taken.pause_ms {
                    0.0 => String::new(),
                    pause => format!("  processes stood still for {pause:.1} ms"),
                };
                output::line(&format!("{}{pause}", taken.name))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

async fn list(client: &Client, id: &str, json: bool) -> Result<(), Failure> {
    let list = client.snapshots(id).await?;
    if json { output::json(&list) } else { output::text(&table(&list, Timestamp::now())) }
}

fn table(list: &SnapshotList, now: Timestamp) -> String {
    let mut table = Table::new(&["name", "age", "size", "entries", "parent"]);
    for snapshot in &list.snapshots {
        let counted = |number: Option<u64>, show: fn(u64) -> String| number.map_or("…".to_owned(), show);
        table.row([
            &snapshot.name,
            &output::ago(now, snapshot.created),
            &counted(snapshot.size, format_bytes),
            &counted(snapshot.entries, |entries| entries.to_string()),
            snapshot.parent.as_deref().unwrap_or("baseline"),
        ]);
    }
    table.to_string()
}

async fn tree(client: &Client, id: &str, json: bool) -> Result<(), Failure> {
    let lineage = client.lineage(id).await?;
    if json {
        return output::json(&lineage);
    }
    let mut text = String::new();
    let known = |id: &str| lineage.nodes.iter().any(|node| node.session == id);
    let roots =
        lineage.nodes.iter().filter(|node| node.parent.as_deref().is_none_or(|parent| !known(parent)));
    for root in roots {
        draw(&lineage, root, (0, id), &mut text);
    }
    output::text(&text)
}

fn draw(lineage: &Lineage, node: &LineageNode, (depth, own): (usize, &str), text: &mut String) {
    let mark = if node.session == own { "*" } else { " " };
    let at = node.at.as_deref().map_or(String::new(), |at| format!(" at {at}"));
    let name = output::clean(&node.name);
    let snapshots = match node.snapshots.as_slice() {
        [] => String::new(),
        names => format!("  [{}]", names.join(", ")),
    };
    text.push_str(&format!("{mark} {}{}  {name}{at}{snapshots}\n", "  ".repeat(depth), node.session));
    for child in lineage.nodes.iter().filter(|child| child.parent.as_deref() == Some(&node.session)) {
        draw(lineage, child, (depth + 1, own), text);
    }
}
