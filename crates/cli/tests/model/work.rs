//! File work on a session and on its model: through the API, or by the room's own shell.

use super::{Node, Refused, Tree, parent};
use crate::violence::Dice;
use std::collections::BTreeMap;
use workroom_testkit::TestSession;
use workroom_testkit::client::{Client, ClientError, Upload, WriteFile};
use workroom_testkit::types::{EditFile, FileKind, FilePath, ListFiles, MakeDirectory, Transfer};

#[derive(Debug, Clone)]
pub(crate) enum Work {
    Write { path: String, content: String, append: bool },
    MakeDirectory { path: String },
    Transfer { from: String, to: String, overwrite: bool, keep: bool },
    Delete { path: String },
    Edit { path: String, old: String, new: String },
    Chmod { path: String, mode: u32 },
    Link { path: String, target: String },
}

impl Work {
    pub(crate) fn random(dice: &mut Dice, tree: &Tree, number: u64) -> Work {
        let path = |dice: &mut Dice| any_path(dice, tree);
        match dice.below(12) {
            0..4 => {
                Work::Write { path: path(dice), content: format!("w{number}"), append: dice.below(3) == 0 }
            }
            4 => Work::MakeDirectory { path: path(dice) },
            5..8 => {
                let (from, to, keep) = (path(dice), path(dice), dice.below(2) == 0);
                Work::Transfer { from, to, overwrite: dice.below(2) == 0, keep }
            }
            8 => Work::Delete { path: path(dice) },
            9 => {
                let old = ["w", "e", "1"][dice.below(3) as usize].to_owned();
                Work::Edit { path: path(dice), old, new: format!("e{number}") }
            }
            10 => Work::Chmod { path: path(dice), mode: [0o755, 0o700, 0o775][dice.below(3) as usize] },
            _ => {
                let target = ["a", "../b", "/workspace/c", "nowhere", "/etc/passwd"][dice.below(5) as usize];
                Work::Link { path: path(dice), target: target.into() }
            }
        }
    }

    /// Where links lead is the tests' of files: here they are only ever made, moved, copied and deleted themselves.
    pub(crate) fn is_for_the_model(&self, tree: &Tree) -> bool {
        let plain = |path: &String| !tree.leads_through_link(path);
        match self {
            Work::Write { path, .. }
            | Work::MakeDirectory { path }
            | Work::Edit { path, .. }
            | Work::Chmod { path, .. } => plain(path) && !tree.is_link(path),
            Work::Delete { path } | Work::Link { path, .. } => plain(path),
            Work::Transfer { from, to, .. } => plain(from) && plain(to),
        }
    }

    pub(crate) fn on_model(&self, tree: &mut Tree) -> Result<(), Refused> {
        // What is refused changes nothing.
        let mut after = tree.clone();
        match self {
            Work::Write { path, content, append } => after.write(path, content, *append)?,
            Work::MakeDirectory { path } => after.make_directory(path)?,
            Work::Transfer { from, to, overwrite, keep } => after.transfer(from, to, *overwrite, *keep)?,
            Work::Delete { path } => drop(after.delete(path)),
            Work::Edit { path, old, new } => after.edit(path, old, new)?,
            Work::Chmod { path, mode } => after.chmod(path, *mode)?,
            Work::Link { path, target } => after.link(path, target)?,
        }
        *tree = after;
        Ok(())
    }

    /// Whether the API has a word for it.
    pub(crate) fn is_for_the_api(&self) -> bool {
        !matches!(self, Work::Chmod { .. } | Work::Link { .. })
    }

    pub(crate) async fn by_api(&self, client: &Client, id: &str) -> Result<(), ClientError> {
        match self.clone() {
            Work::Write { path, content, append } => {
                let file = WriteFile { path, append, ..WriteFile::default() };
                client.upload(id, &file, Upload::from(content.into_bytes())).await.map(drop)
            }
            Work::MakeDirectory { path } => {
                client.make_directory(id, &MakeDirectory { path, ..MakeDirectory::default() }).await.map(drop)
            }
            Work::Transfer { from, to, overwrite, keep } => {
                let request = Transfer { from, to, overwrite, root: false };
                match keep {
                    true => client.copy_file(id, &request).await.map(drop),
                    false => client.move_file(id, &request).await.map(drop),
                }
            }
            Work::Delete { path } => {
                client.delete_file(id, &FilePath { path, root: false }, true).await.map(drop)
            }
            Work::Edit { path, old, new } => {
                client.edit_file(id, &EditFile { path, old, new, ..EditFile::default() }).await.map(drop)
            }
            Work::Chmod { .. } | Work::Link { .. } => Ok(()),
        }
    }

    /// What is done by the shell that the model allows.
    pub(crate) async fn by_shell(&self, session: &TestSession) {
        let above = |path: &str| match parent(path) {
            Some(above) => format!("mkdir -p '{above}' && "),
            None => String::new(),
        };
        let command = match self {
            Work::Write { path, content, append } => {
                let to = if *append { ">>" } else { ">" };
                format!("{}printf %s '{content}' {to} '{path}'", above(path))
            }
            Work::MakeDirectory { path } => format!("mkdir -p '{path}'"),
            Work::Transfer { from, to, keep: true, .. } => {
                // Of what is there only the name is kept, as when something is put in its place.
                format!("{}rm -f '{to}' && cp -aT '{from}' '{to}'", above(to))
            }
            Work::Transfer { from, to, keep: false, .. } => format!("{}mv -fT '{from}' '{to}'", above(to)),
            Work::Delete { path } => format!("rm -rf '{path}' 2>/dev/null || test ! -e '{path}'"),
            Work::Edit { path, old, new } => format!("sed -i 's/{old}/{new}/' '{path}'"),
            Work::Chmod { path, mode } => format!("chmod {mode:o} '{path}'"),
            Work::Link { path, target } => format!("ln -s '{target}' '{path}'"),
        };
        session.says(&format!("umask 022; {command}")).await;
    }
}

/// Few names, so that one thing is often in the way of another; and rather what is there than what is not.
fn any_path(dice: &mut Dice, tree: &Tree) -> String {
    if dice.below(3) > 0 && !tree.0.is_empty() {
        let known: Vec<&String> = tree.0.keys().collect();
        return known[dice.below(known.len() as u64) as usize].clone();
    }
    let names = ["a", "b", "c", "d e", "ü"];
    let depth = 1 + dice.below(4);
    let parts: Vec<&str> = (0..depth).map(|_| names[dice.below(names.len() as u64) as usize]).collect();
    parts.join("/")
}

/// The real tree, as the room's own programs see it.
pub(crate) async fn tree_by_shell(session: &TestSession) -> Tree {
    let said = session
        .says("find . -mindepth 1 -printf '%y\\t%m\\t%P\\t%l\\n'; echo; find . -type f -exec grep -aH '' {} +; true")
        .await;
    let (entries, contents) = said.split_once("\n\n").unwrap_or((said.trim(), ""));
    let contents: BTreeMap<&str, &str> =
        contents.lines().filter_map(|line| line.strip_prefix("./")?.split_once(':')).collect();
    let node = |line: &str| {
        let [kind, mode, path, target] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let mode = u32::from_str_radix(mode, 8).expect("a mode");
        let node = match kind {
            "d" => Node::Directory { mode },
            "l" => Node::Link { target: target.into() },
            _ => {
                let content = contents.get(path).copied().unwrap_or_default().to_owned();
                Node::File { mode, content }
            }
        };
        (path.to_owned(), node)
    };
    Tree(entries.lines().filter(|line| !line.is_empty()).map(node).collect())
}

/// The real tree as the API lists it agrees with the model; contents are not listed, their lengths are.
pub(crate) async fn expect_listed(client: &Client, id: &str, tree: &Tree) {
    let request = ListFiles { recursive: true, limit: Some(10_000), ..ListFiles::default() };
    let list = client.list_files(id, &request).await.expect("a list");
    let listed: Vec<(String, FileKind, String, u64)> = list
        .entries
        .into_iter()
        .map(|entry| {
            let of_interest = match entry.kind {
                FileKind::Directory => (entry.mode, 0),
                FileKind::Symlink => (entry.target.unwrap_or_default(), 0),
                _ => (entry.mode, entry.size),
            };
            (entry.path, entry.kind, of_interest.0, of_interest.1)
        })
        .collect();
    let expected: Vec<(String, FileKind, String, u64)> = tree
        .0
        .iter()
        .map(|(path, node)| match node {
            Node::Directory { mode } => (path.clone(), FileKind::Directory, format!("{mode:04o}"), 0),
            Node::Link { target } => (path.clone(), FileKind::Symlink, target.clone(), 0),
            Node::File { mode, content } => {
                (path.clone(), FileKind::File, format!("{mode:04o}"), content.len() as u64)
            }
        })
        .collect();
    assert_eq!(listed, expected);
}
