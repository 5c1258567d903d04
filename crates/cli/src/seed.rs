//! `workroom create --seed`: a new session's files from a directory, an archive or a git bundle of this machine.

use crate::progress::{Progress, Watched};
use crate::remote::Failure;
use crate::tree;
use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;
use workroom_client::{Client, Upload, WriteFile};
use workroom_types::{ExecRequest, FilePath, Session};

/// Where a bundle lies in the room while it is cloned.
const BUNDLE: &str = "/tmp/seed.bundle";

/// A clone may take long, and nobody else waits for the session yet.
const LONGEST_CLONE_MS: u64 = 600_000;

/// Puts the files there and makes them the session's baseline. A session that cannot be seeded is not kept.
pub(crate) async fn plant(client: &Client, session: &Session, seed: &Path) -> Result<Session, Failure> {
    let planted = async {
        put(client, &session.id, seed).await?;
        Ok(client.set_baseline(&session.id).await?)
    };
    match planted.await {
        Ok(session) => Ok(session),
        Err(failure) => {
            client.delete(&session.id).await?;
            Err(failure)
        }
    }
}

async fn put(client: &Client, id: &str, seed: &Path) -> Result<(), Failure> {
    let unreadable =
        |error: std::io::Error| Failure::problem(format!("{} cannot be read: {error}", seed.display()), "");
    let workspace = FilePath::default();
    if seed.is_dir() {
        client.import_archive(id, &workspace, tree::pack(seed)).await?;
        return Ok(());
    }
    let mut file = File::open(seed).map_err(unreadable)?;
    let length = file.metadata().map_err(unreadable)?.len();
    let mut first = Vec::new();
    file.by_ref().take(16).read_to_end(&mut first).map_err(unreadable)?;
    file.rewind().map_err(unreadable)?;
    let upload = Upload::new(Watched { reader: file, progress: Progress::new(Some(length)) }).length(length);
    if first.starts_with(b"# v2 git bundle") || first.starts_with(b"# v3 git bundle") {
        let bundle = WriteFile { path: BUNDLE.into(), root: true, ..WriteFile::default() };
        client.upload(id, &bundle, upload).await?;
        return clone(client, id).await;
    }
    client.import_archive(id, &workspace, upload).await?;
    Ok(())
}

async fn clone(client: &Client, id: &str) -> Result<(), Failure> {
    let request = ExecRequest {
        command: Some(format!("git clone -q {BUNDLE} . && rm -f {BUNDLE}")),
        timeout_ms: Some(LONGEST_CLONE_MS),
        ..ExecRequest::default()
    };
    let done = client.exec(id, &request).await?;
    if done.exit_code == 0 {
        return Ok(());
    }
    let why = done.stderr.lines().last().unwrap_or("git failed").to_owned();
    Err(Failure::problem(format!("the bundle cannot be cloned: {why}"), "try `git bundle verify` on it"))
}
