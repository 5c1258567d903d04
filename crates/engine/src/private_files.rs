//! Files kept beside a session, out of its room's reach: durable, and deleted with it.

use crate::state_dir::{make_dir, write_durably};
use crate::{Engine, blocking, sessions, validate};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;
use workroom_types::{Caller, PrivateFile, PrivateFiles, Problem, ProblemCode, Timestamp};

/// Bytes of one file.
const LARGEST: usize = 16 << 20;

/// Files of one session.
const MOST: usize = 1000;

impl Engine {
    pub async fn private_list(&self, caller: &Caller, id: &str) -> Result<PrivateFiles, Problem> {
        let dir = self.private_dir(caller, id).await?;
        blocking(move || list(&dir)).await.map(|files| PrivateFiles { files })
    }

    pub async fn private_read(&self, caller: &Caller, id: &str, name: &str) -> Result<Vec<u8>, Problem> {
        let (dir, name) = (self.private_dir(caller, id).await?, name.to_owned());
        blocking(move || read(&dir, &name)).await
    }

    pub async fn private_write(
        &self,
        caller: &Caller,
        id: &str,
        name: &str,
        data: Vec<u8>,
    ) -> Result<(), Problem> {
        let (dir, name) = (self.private_dir(caller, id).await?, name.to_owned());
        let owner = sessions::handle(&self.shared, caller, id).await?.owner;
        if let Some(rules) = self.shared.upload_rules(&owner) {
            let checked = rules.check_name(&name).and_then(|()| rules.check_size(&name, data.len() as u64));
            self.shared.refuse_upload(id, caller, &name, checked).await?;
        }
        blocking(move || write(&dir, &name, &data)).await
    }

    pub async fn private_delete(&self, caller: &Caller, id: &str, name: &str) -> Result<(), Problem> {
        let (dir, name) = (self.private_dir(caller, id).await?, name.to_owned());
        blocking(move || delete(&dir, &name)).await
    }

    async fn private_dir(&self, caller: &Caller, id: &str) -> Result<PathBuf, Problem> {
        sessions::get(&self.shared, caller, id).await?;
        self.shared.pools.check_open(id)?;
        Ok(self.shared.state.private().join(id))
    }
}

fn failed(error: io::Error) -> Problem {
    Problem::new(
        ProblemCode::StorageUnavailable,
        format!("the private file was not written or read: {error}"),
        "free some space in the state directory",
    )
}

fn no_file(name: &str) -> Problem {
    Problem::new(ProblemCode::NotFound, format!("there is no private file {name}"), "")
}

/// All of a session's files, by name. Blocks.
pub(crate) fn list(dir: &Path) -> Result<Vec<PrivateFile>, Problem> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut files = Vec::new();
    for entry in entries.flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        // One that is being written has a name that no caller can give.
        if name.starts_with('.') {
            continue;
        }
        let Ok(meta) = entry.metadata() else { continue };
        let since = meta.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let modified = Timestamp(since.map_or(0, |since| since.as_millis() as i64));
        files.push(PrivateFile { name, size: meta.len(), modified });
    }
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(files)
}

pub(crate) fn read(dir: &Path, name: &str) -> Result<Vec<u8>, Problem> {
    validate::file_name(name)?;
    let mut data = Vec::new();
    match std::fs::File::open(dir.join(name)) {
        Ok(mut file) => file.read_to_end(&mut data).map_err(failed)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(no_file(name)),
        Err(error) => return Err(failed(error)),
    };
    Ok(data)
}

pub(crate) fn write(dir: &Path, name: &str, data: &[u8]) -> Result<(), Problem> {
    validate::file_name(name)?;
    if data.len() > LARGEST {
        return Err(Problem::new(
            ProblemCode::BodyTooLarge,
            format!("{} bytes are more than a private file may have ({LARGEST})", data.len()),
            "",
        ));
    }
    make_dir(dir).map_err(failed)?;
    let files = list(dir)?;
    if files.len() >= MOST && !files.iter().any(|file| file.name == name) {
        let detail = format!("the session has {MOST} private files, which is the most");
        return Err(Problem::limit("private_files", detail, "delete one first"));
    }
    write_durably(dir, name, data).map_err(failed)
}

/// Deleting what is gone succeeds.
pub(crate) fn delete(dir: &Path, name: &str) -> Result<(), Problem> {
    validate::file_name(name)?;
    match std::fs::remove_file(dir.join(name)) {
        Ok(()) => sync(dir).map_err(failed),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(error)),
    }
}

fn sync(dir: &Path) -> io::Result<()> {
    std::fs::File::open(PathBuf::from(dir))?.sync_all()
}
