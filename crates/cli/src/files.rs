//! `workroom files`: the files of a session, listed; and what is done to them by name.

use crate::output::{self, ago, clean};
use crate::place::Remote;
use crate::remote::{Failure, complain, perform};
use crate::table::Table;
use crate::which;
use std::process::ExitCode;
use workroom_client::Client;
use workroom_types::{
    FileInfo, FileKind, FileList, ListFiles, MakeDirectory, Timestamp, Transfer, format_bytes,
};

/// The most that a server gives at once.
const LARGEST_PAGE: u64 = 10_000;

#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:\n  workroom files build src -r --glob '*.rs'\n  workroom files rm build:target -r"
)]
pub(crate) struct Options {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    list: List,
}

#[derive(clap::Args)]
struct List {
    /// The session: its id, the beginning of one, or its name
    #[arg(value_name = "SESSION", required = true)]
    id: Option<String>,
    /// A directory [default: the workspace]
    #[arg(value_name = "PATH", default_value = "")]
    path: String,
    /// Also what is below the directories in it
    #[arg(short = 'r', long)]
    recursive: bool,
    /// Only what this matches: *.rs by name, src/*.rs by path
    #[arg(long, value_name = "GLOB")]
    glob: Option<String>,
    /// Leave out names that begin with a dot
    #[arg(long)]
    no_hidden: bool,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..), allow_hyphen_values = true)]
    limit: u64,
    /// All of them
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(clap::Args)]
struct Common {
    /// Paths begin at / and not at /workspace
    #[arg(long)]
    root: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Delete files, or with -r directories
    #[command(after_help = "Example:\n  workroom files rm build:target -r")]
    Rm {
        #[arg(value_name = "SESSION:PATH", required = true, value_parser = Remote::parse)]
        files: Vec<Remote>,
        /// Also directories that are not empty
        #[arg(short = 'r', long)]
        recursive: bool,
        #[command(flatten)]
        common: Common,
    },
    /// Make directories, and those above them
    #[command(after_help = "Example:\n  workroom files mkdir build:out/logs")]
    Mkdir {
        #[arg(value_name = "SESSION:PATH", required = true, value_parser = Remote::parse)]
        files: Vec<Remote>,
        #[command(flatten)]
        common: Common,
    },
    /// Move or rename a file or a directory
    #[command(after_help = "Example:\n  workroom files mv build:draft.md docs/final.md")]
    Mv {
        #[arg(value_name = "SESSION:PATH", value_parser = Remote::parse)]
        file: Remote,
        /// A path of the same session
        #[arg(value_name = "PATH")]
        to: String,
        /// Replace a file that is there
        #[arg(long)]
        overwrite: bool,
        #[command(flatten)]
        common: Common,
    },
    /// Show what a path names
    #[command(after_help = "Example:\n  workroom files stat build:main.rs")]
    Stat {
        #[arg(value_name = "SESSION:PATH", value_parser = Remote::parse)]
        file: Remote,
        #[command(flatten)]
        common: Common,
    },
    /// Measure what is below a path
    #[command(after_help = "Example:\n  workroom files du build:target")]
    Du {
        #[arg(value_name = "SESSION[:PATH]", value_parser = Remote::parse_either)]
        file: Remote,
        #[command(flatten)]
        common: Common,
    },
}

pub(crate) fn run(options: Options) -> ExitCode {
    match options.verb {
        None => perform(options.list.common.json, async |client| list(&client, &options.list).await),
        Some(verb) => {
            let (Verb::Rm { common, .. }
            | Verb::Mkdir { common, .. }
            | Verb::Mv { common, .. }
            | Verb::Stat { common, .. }
            | Verb::Du { common, .. }) = &verb;
            perform(common.json, async |client| act(&client, &verb).await)
        }
    }
}

async fn list(client: &Client, options: &List) -> Result<ExitCode, Failure> {
    let id = which::session(client, options.id.as_deref().unwrap_or_default()).await?;
    let wanted = if options.all { u64::MAX } else { options.limit };
    let mut found = FileList { path: String::new(), entries: Vec::new(), next: None };
    loop {
        let left = wanted - found.entries.len() as u64;
        let request = ListFiles {
            path: options.path.clone(),
            recursive: options.recursive,
            glob: options.glob.clone(),
            hidden: options.no_hidden.then_some(false),
            limit: Some(left.min(LARGEST_PAGE) as u32),
            cursor: found.next.take(),
            root: options.common.root,
        };
        let page = client.list_files(&id, &request).await?;
        let over = page.entries.is_empty();
        found.path = page.path;
        found.entries.extend(page.entries);
        found.next = page.next;
        if over || found.next.is_none() || found.entries.len() as u64 >= wanted {
            break;
        }
    }
    if options.common.json {
        output::json(&found)?;
        return Ok(ExitCode::SUCCESS);
    }
    output::text(&table(&found.entries, Timestamp::now()))?;
    if found.next.is_some() {
        complain(&format!("these are the first {}; --all shows all of them", found.entries.len()));
    }
    Ok(ExitCode::SUCCESS)
}

fn table(files: &[FileInfo], now: Timestamp) -> String {
    let mut table = Table::new(&["mode", "size", "age", "path"]);
    for file in files {
        let path = clean(&file.path);
        let (kind, name) = match (&file.kind, &file.target) {
            (FileKind::File, _) => ("-", path.into_owned()),
            (FileKind::Directory, _) => ("d", format!("{path}/")),
            (FileKind::Symlink, Some(target)) => ("l", format!("{path} -> {}", clean(target))),
            (FileKind::Symlink, None) => ("l", path.into_owned()),
            (FileKind::Other, _) => ("?", path.into_owned()),
        };
        let size = if file.kind == FileKind::File { format_bytes(file.size) } else { String::new() };
        table.row([&format!("{kind}{}", file.mode), &size, &ago(now, file.mtime), &name]);
    }
    table.to_string()
}

async fn act(client: &Client, verb: &Verb) -> Result<ExitCode, Failure> {
    match verb {
        Verb::Rm { files, recursive, common } => {
            for file in files {
                let id = file.id(client).await?;
                let deleted = client.delete_file(&id, &file.at(common.root), *recursive).await?;
                if common.json {
                    output::json(&deleted)?;
                } else {
                    let entries = output::count(deleted.deleted, "entry", "entries");
                    output::line(&format!("{}  {entries} deleted", clean(&file.path)))?;
                }
            }
        }
        Verb::Mkdir { files, common } => {
            for file in files {
                let id = file.id(client).await?;
                let (path, root) = (file.path.clone(), common.root);
                let request = MakeDirectory { path, root, ..MakeDirectory::default() };
                show(&client.make_directory(&id, &request).await?, common)?;
            }
        }
        Verb::Mv { file, to, overwrite, common } => {
            let id = file.id(client).await?;
            let (from, to, overwrite, root) = (file.path.clone(), to.clone(), *overwrite, common.root);
            show(&client.move_file(&id, &Transfer { from, to, overwrite, root }).await?, common)?;
        }
        Verb::Stat { file, common } => {
            let id = file.id(client).await?;
            show(&client.stat_file(&id, &file.at(common.root)).await?, common)?;
        }
        Verb::Du { file, common } => {
            let id = file.id(client).await?;
            let used = client.disk_use(&id, &file.at(common.root)).await?;
            if common.json {
                output::json(&used)?;
                return Ok(ExitCode::SUCCESS);
            }
            output::text(&output::sheet(&[
                ("contents", format_bytes(used.bytes)),
                ("on the disk", format_bytes(used.allocated)),
                ("files", used.files.to_string()),
                ("directories", used.directories.to_string()),
                ("links", used.symlinks.to_string()),
                ("others", used.others.to_string()),
            ]))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn show(file: &FileInfo, common: &Common) -> Result<(), Failure> {
    if common.json {
        return output::json(file);
    }
    output::text(&table(std::slice::from_ref(file), Timestamp::now()))
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

    #[test]
    fn a_session_is_listed_and_a_verb_is_done() {
        let parsed = |words: &[&str]| {
            Only::try_parse_from(std::iter::once("files").chain(words.iter().copied()))
                .map(|only| only.options)
        };
        let listed = parsed(&["build", "src", "-r"]).unwrap_or_else(|error| panic!("{error}"));
        assert!(listed.verb.is_none() && listed.list.recursive);
        assert!(matches!(
            parsed(&["rm", "build:x", "-r"]).map(|it| it.verb),
            Ok(Some(Verb::Rm { recursive: true, .. }))
        ));
        for wrong in [&[][..], &["rm"], &["rm", "build"], &["mv", "build:x"]] {
            assert!(parsed(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn files_are_a_table() {
        let file = |path: &str, kind, size, target: Option<&str>| FileInfo {
            path: path.into(),
            kind,
            size,
            mode: "0644".into(),
            mtime: Timestamp(0),
            target: target.map(str::to_owned),
            etag: String::new(),
        };
        let files = [
            file("a", FileKind::File, 2048, None),
            file("d", FileKind::Directory, 0, None),
            file("l", FileKind::Symlink, 1, Some("a\n")),
        ];
        assert_eq!(
            table(&files, Timestamp(5000)),
            "MODE   SIZE   AGE  PATH\n-0644  2 KiB  5s   a\nd0644         5s   d/\nl0644         5s   l -> a\\n\n"
        );
    }
}
