//! Files of a session's room: asked of a clerk in the room, so that no path of a room is ever opened by the host.
//!
//! ```text
//!  call ──▶ Files ──Ask::Clerks──▶ the session's owner: makes a room if there is none
//!             │ clerks.rs: one of the room's clerks is borrowed; the owner goes on with other things
//!             ▼
//!           clerk: answers, or hands out the open file ──▶ contents.rs, archives.rs: what is in it
//! ```

pub(crate) mod archives;
pub(crate) mod clerks;
pub(crate) mod contents;
mod filtered;

use crate::actor::Ask;
use crate::filters::Measured;
use crate::idempotency::intent;
use crate::{Engine, Permit, sessions, storage};
use clerks::{Clerks, Lent, Lost};
use contents::{Source, checked, pour};
use serde_json::{Value, json};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::sync::mpsc;
use workroom_proto::{Failure, FromClerk, NewFile, ToClerk};
use workroom_store::Change;
use workroom_types::{
    ApplyPatch, Caller, Deleted, DiskUse, EditFile, Edited, FileContent, FileInfo, FileList, FilePath, Layer,
    ListFiles, MakeDirectory, Patched, Problem, ProblemCode, ReadFile, RoomPath, SearchFiles, SearchResult,
    Timestamp, Transfer, WatchEvent,
};

/// Events that wait for a slow reader of a watch; then the room's own queue fills, and says when it overflows.
const WAITING_EVENTS: usize = 64;

/// The files of one session, for one caller.
#[derive(Clone, Copy)]
pub struct Files<'a> {
    engine: &'a Engine,
    caller: &'a Caller,
    id: &'a str,
}

/// A file that was written, and whether there was none before.
pub struct Written {
    pub info: FileInfo,
    pub created: bool,
}

/// Whether a request that may have been done can be made again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Repeat {
    Safe,
    Never,
}

impl Engine {
    pub fn files<'a>(&'a self, caller: &'a Caller, id: &'a str) -> Files<'a> {
        Files { engine: self, caller, id }
    }
}

impl Files<'_> {
    pub async fn list(&self, request: ListFiles) -> Result<FileList, Problem> {
        match self.ask(&ToClerk::List(request), Repeat::Safe).await? {
            (FromClerk::List(list), _) => Ok(list),
            other => Err(unexpected(other.0)),
        }
    }

    pub async fn stat(&self, request: FilePath) -> Result<FileInfo, Problem> {
        match self.ask(&ToClerk::Stat(request), Repeat::Safe).await? {
            (FromClerk::Info(info), _) => Ok(info),
            other => Err(unexpected(other.0)),
        }
    }

    /// A part of a file, in one piece.
    pub async fn read(&self, request: ReadFile) -> Result<FileContent, Problem> {
        match self.ask(&ToClerk::Read(request), Repeat::Safe).await? {
            (FromClerk::Content(content), _) => Ok(content),
            other => Err(unexpected(other.0)),
        }
    }

    /// The open file, to be read from; its size is for the reader to ask the file itself.
    pub async fn open(&self, request: FilePath) -> Result<(File, FileInfo), Problem> {
        match self.ask(&ToClerk::Open(request), Repeat::Safe).await? {
            (FromClerk::Opened(info), fds) => Ok((checked(fds, false)?, info)),
            other => Err(unexpected(other.0)),
        }
    }

    /// Where a session's disk has an end of its own, what does not fit any more does not fit there; the machine is well.
    fn by_own_limit(&self, problem: Problem) -> Problem {
        let is_limited = || {
            let handle = self.engine.shared.owner_of(self.id);
            handle.is_some_and(|handle| handle.session().enforced.holds(Layer::Disk))
        };
        if problem.code != ProblemCode::StorageUnavailable || !is_limited() {
            return problem;
        }
        let hint = "delete something, or raise the session's disk limit";
        Problem::limit("disk", "the session's disk is full; the file is as it was", hint)
    }

    /// Writes a file whole, or adds to its end. Until all of it is there nothing is changed.
    pub async fn write(
        &self,
        new: NewFile,
        source: &mut impl Source,
        permit: Option<&Permit>,
    ) -> Result<Written, Problem> {
        let rules = self.upload_rules().await?;
        self.check_upload(&rules, &new.path, |rules| rules.check_name(&filtered::plain(&new.path, new.root)))
            .await?;
        let create = ToClerk::Create(new.clone());
        if new.append || new.if_none || new.if_match.is_some() {
            self.begin_once(&create, permit).await?;
        }
        let stat = ToClerk::Stat(FilePath { path: new.path.clone(), root: new.root });
        let (mut clerk, answer) = self.converse(&stat, Repeat::Safe).await?;
        let created =
            matches!(&answer.0, FromClerk::Failed(failure) if failure.code == ProblemCode::NotFound);
        let fds = match clerk.ask(&create, &[]).await {
            Ok((FromClerk::Writable, fds)) => fds,
            Ok((other, _)) => return Err(unexpected(other)),
            Err(lost) => return Err(clerk.explain(lost).await),
        };
        let poured = match pour(&mut Measured::new(source, rules, &new.path), checked(fds, true)?).await {
            Ok(poured) => poured,
            Err(problem) => return self.refused(&new.path, self.by_own_limit(problem)).await,
        };
        let info = match clerk.ask(&ToClerk::Commit, &[]).await {
            Ok((FromClerk::Info(info), _)) => info,
            Ok((other, _)) => return Err(unexpected(other)),
            Err(lost) => return Err(clerk.explain(lost).await),
        };
        let mut body = json!({"path": info.path, "bytes": poured.bytes, "sha256": poured.sha256});
        if new.append {
            body["appended"] = json!(true);
        }
        self.note("file.written", body).await;
        Ok(Written { info, created })
    }

    pub async fn make_directory(&self, request: MakeDirectory) -> Result<FileInfo, Problem> {
        match self.ask(&ToClerk::MakeDirectory(request), Repeat::Safe).await? {
            (FromClerk::Info(info), _) => {
                self.note("file.made", json!({"path": info.path})).await;
                Ok(info)
            }
            other => Err(unexpected(other.0)),
        }
    }

    pub async fn rename(&self, request: Transfer, permit: Option<&Permit>) -> Result<FileInfo, Problem> {
        self.check_target(&request.to, request.root).await?;
        let info = self.transfer(ToClerk::Move(request.clone()), permit).await?;
        self.note("file.moved", json!({"from": shown(&request.from, request.root), "path": info.path})).await;
        Ok(info)
    }

    pub async fn copy(&self, request: Transfer, permit: Option<&Permit>) -> Result<FileInfo, Problem> {
        self.check_target(&request.to, request.root).await?;
        let info = self.transfer(ToClerk::Copy(request.clone()), permit).await?;
        let from = shown(&request.from, request.root);
        self.note("file.copied", json!({"from": from, "path": info.path, "bytes": info.size})).await;
        Ok(info)
    }

    async fn transfer(&self, ask: ToClerk, permit: Option<&Permit>) -> Result<FileInfo, Problem> {
        self.begin_once(&ask, permit).await?;
        match self.ask(&ask, Repeat::Never).await? {
            (FromClerk::Info(info), _) => Ok(info),
            other => Err(unexpected(other.0)),
        }
    }

    /// Deleting what is gone succeeds.
    pub async fn delete(&self, request: FilePath, recursive: bool) -> Result<Deleted, Problem> {
        let FilePath { path, root } = request;
        let ask = ToClerk::Delete { path: path.clone(), recursive, root };
        match self.ask(&ask, Repeat::Safe).await? {
            (FromClerk::Deleted(deleted), _) => {
                if deleted.deleted > 0 {
                    let path = shown(&path, root);
                    self.note("file.deleted", json!({"path": path, "entries": deleted.deleted})).await;
                }
                Ok(deleted)
            }
            other => Err(unexpected(other.0)),
        }
    }

    pub async fn edit(&self, request: EditFile, permit: Option<&Permit>) -> Result<Edited, Problem> {
        self.check_target(&request.path, request.root).await?;
        let ask = ToClerk::Edit(request);
        self.begin_once(&ask, permit).await?;
        match self.ask(&ask, Repeat::Never).await? {
            (FromClerk::Edited(edited), _) => {
                let Edited { path, replacements, size, .. } = &edited;
                self.note("file.edited", json!({"path": path, "replacements": replacements, "bytes": size}))
                    .await;
                Ok(edited)
            }
            other => Err(unexpected(other.0)),
        }
    }

    pub async fn search(&self, request: SearchFiles) -> Result<SearchResult, Problem> {
        match self.ask(&ToClerk::Search(request), Repeat::Safe).await? {
            (FromClerk::Found(found), _) => Ok(found),
            other => Err(unexpected(other.0)),
        }
    }

    pub async fn patch(&self, request: ApplyPatch, permit: Option<&Permit>) -> Result<Patched, Problem> {
        let dry_run = request.dry_run;
        self.check_patch(&request).await?;
        let ask = ToClerk::Patch(request);
        if !dry_run {
            self.begin_once(&ask, permit).await?;
        }
        match self.ask(&ask, Repeat::Never).await? {
            (FromClerk::Patched(patched), _) => {
                if patched.applied {
                    let file = |file: &workroom_types::PatchedFile| json!({"path": file.path, "change": file.change});
                    let files: Vec<Value> = patched.files.iter().map(file).collect();
                    self.note("file.patched", json!({"files": files})).await;
                }
                Ok(patched)
            }
            other => Err(unexpected(other.0)),
        }
    }

    pub async fn disk_use(&self, request: FilePath) -> Result<DiskUse, Problem> {
        match self.ask(&ToClerk::DiskUse(request), Repeat::Safe).await? {
            (FromClerk::DiskUse(used), _) => Ok(used),
            other => Err(unexpected(other.0)),
        }
    }

    /// What happens to files from now on. Ends when the receiver is dropped or the room ends.
    pub async fn watch(
        &self,
        request: FilePath,
        recursive: bool,
    ) -> Result<mpsc::Receiver<WatchEvent>, Problem> {
        let FilePath { path, root } = request;
        let ask = ToClerk::Watch { path, recursive, root };
        let mut clerk = self.clerks(&ask).await?.lend_for_watch().await?;
        match clerk.ask(&ask, &[]).await {
            Ok((FromClerk::Watching, _)) => {}
            Ok((other, _)) => return Err(unexpected(other)),
            Err(lost) => return Err(clerk.explain(lost).await),
        }
        let (events, receiver) = mpsc::channel(WAITING_EVENTS);
        tokio::spawn(async move {
            loop {
                let event = tokio::select! {
                    said = clerk.receive() => match said {
                        Ok((FromClerk::Event(event), _)) => event,
                        _ => return,
                    },
                    () = events.closed() => return,
                };
                if events.send(event).await.is_err() {
                    return;
                }
            }
        });
        Ok(receiver)
    }

    /// The clerks of the session's room, which is made if there is none; not for a path that makes no sense.
    async fn clerks(&self, request: &ToClerk) -> Result<Arc<Clerks>, Problem> {
        self.engine.open_for_work()?;
        let handle = sessions::handle(&self.engine.shared, self.caller, self.id).await?;
        check_paths(request)?;
        let actor = self.caller.name.clone();
        sessions::ask(&handle, self.id, |reply| Ask::Clerks { actor, reply }).await
    }

    /// One request to any clerk, and its answer; the clerk is free again.
    async fn ask(&self, request: &ToClerk, repeat: Repeat) -> Result<(FromClerk, Vec<OwnedFd>), Problem> {
        let (_, answer) = self.converse(request, repeat).await?;
        Ok(answer)
    }

    /// One request to any clerk, and its answer. A clerk that was lost on the way is replaced once, if the request was
    /// not sent or does no harm twice.
    async fn converse(
        &self,
        request: &ToClerk,
        repeat: Repeat,
    ) -> Result<(Lent, (FromClerk, Vec<OwnedFd>)), Problem> {
        let mut is_first = true;
        loop {
            let mut clerk = self.clerks(request).await?.lend().await?;
            let lost = match clerk.ask(request, &[]).await {
                Ok(answer) => return Ok((clerk, answer)),
                Err(lost) => lost,
            };
            let again = match lost {
                Lost::Unsent => true,
                Lost::HungUp => repeat == Repeat::Safe,
                Lost::Confused(_) => false,
            };
            if !(is_first && again) {
                return Err(clerk.explain(lost).await);
            }
            is_first = false;
        }
    }

    /// Records, before it has an effect, that something is done under a key which must not be done twice. After a crash
    /// in the middle its repetition is told that nobody knows how far it came.
    async fn begin_once(&self, request: &ToClerk, permit: Option<&Permit>) -> Result<(), Problem> {
        let Some(permit) = permit else { return Ok(()) };
        if permit.resource.is_some() {
            return Err(Problem::new(
                ProblemCode::OutcomeUnknown,
                "the server ended while it was at this",
                "look at what is there, then ask again under another key",
            ));
        }
        sessions::get(&self.engine.shared, self.caller, self.id).await?;
        check_paths(request)?;
        self.engine.shared.store.commit(vec![intent(permit, self.id)]).await.map_err(storage)?;
        Ok(())
    }

    /// For the journal: what was done, never contents.
    async fn note(&self, kind: &str, body: Value) {
        let entry = Change::Journal {
            session: self.id.to_owned(),
            at: Timestamp::now(),
            actor: self.caller.name.clone(),
            kind: kind.to_owned(),
            body,
        };
        self.engine.shared.store.note(entry).await;
    }
}

/// A path as the journal has it, whichever of its forms a caller wrote.
fn shown(path: &str, root: bool) -> String {
    RoomPath::parse(path, root).map_or_else(|_| path.to_owned(), |path| path.shown())
}

/// Refuses paths that make no sense before a room is made for them.
fn check_paths(request: &ToClerk) -> Result<(), Problem> {
    let (path, root) = match request {
        ToClerk::List(ListFiles { path, root, .. })
        | ToClerk::Stat(FilePath { path, root })
        | ToClerk::Read(ReadFile { path, root, .. })
        | ToClerk::Open(FilePath { path, root })
        | ToClerk::Create(NewFile { path, root, .. })
        | ToClerk::MakeDirectory(MakeDirectory { path, root, .. })
        | ToClerk::Delete { path, root, .. }
        | ToClerk::Edit(EditFile { path, root, .. })
        | ToClerk::Search(SearchFiles { path, root, .. })
        | ToClerk::Patch(ApplyPatch { path, root, .. })
        | ToClerk::DiskUse(FilePath { path, root })
        | ToClerk::Watch { path, root, .. }
        | ToClerk::Import { path, root, .. }
        | ToClerk::ImportUnder { path, root, .. }
        | ToClerk::Export { path, root, .. } => (path, *root),
        ToClerk::Move(Transfer { from, to, root, .. }) | ToClerk::Copy(Transfer { from, to, root, .. }) => {
            RoomPath::parse(from, *root)?;
            (to, *root)
        }
        ToClerk::Commit => return Ok(()),
    };
    RoomPath::parse(path, root).map(drop)
}

/// A refusal, or an answer to another question.
fn unexpected(answer: FromClerk) -> Problem {
    match answer {
        FromClerk::Failed(failure) => refusal(failure),
        _ => Problem::new(
            ProblemCode::Internal,
            "the process that works on the room's files answered another question",
            "ask again",
        ),
    }
}

/// What a clerk may refuse with. It is a process of the room, which cannot say what only the host knows.
fn refusal(failure: Failure) -> Problem {
    let is_about_files = matches!(
        failure.code,
        ProblemCode::InvalidArgument
            | ProblemCode::Forbidden
            | ProblemCode::NotFound
            | ProblemCode::PathOutsideWorkspace
            | ProblemCode::AlreadyExists
            | ProblemCode::WrongKind
            | ProblemCode::PreconditionFailed
            | ProblemCode::RangeNotSatisfiable
            | ProblemCode::FileTooLarge
            | ProblemCode::EditMismatch
            | ProblemCode::PatchFailed
            | ProblemCode::ArchiveRefused
            | ProblemCode::Busy
            | ProblemCode::LimitExceeded
            | ProblemCode::StorageUnavailable
            | ProblemCode::Internal
            | ProblemCode::Filtered
    );
    let code = if is_about_files { failure.code } else { ProblemCode::Internal };
    Failure { code, ..failure }.into()
}
