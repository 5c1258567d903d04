//! The operator's rules for uploads, at every way by which files come in or get their names.

use super::{Files, Repeat};
use crate::sessions;
use std::sync::Arc;
use workroom_proto::{FromClerk, ToClerk};
use workroom_types::{ApplyPatch, PatchChange, Problem, RoomPath, UploadRules};

/// A path as its file has it, whichever of its forms a caller wrote.
pub(super) fn plain(path: &str, root: bool) -> String {
    match RoomPath::parse(path, root) {
        Ok(parsed) => String::from_utf8_lossy(&parsed.bytes).into_owned(),
        Err(_) => path.to_owned(),
    }
}

impl Files<'_> {
    pub(crate) async fn upload_rules(&self) -> Result<Option<Arc<UploadRules>>, Problem> {
        let shared = &self.engine.shared;
        let owner = sessions::handle(shared, self.caller, self.id).await?.owner;
        Ok(shared.upload_rules(&owner))
    }

    /// Refuses, and tells of it, what is against the rules.
    pub(super) async fn check_upload(
        &self,
        rules: &Option<Arc<UploadRules>>,
        path: &str,
        check: impl FnOnce(&UploadRules) -> Result<(), Problem>,
    ) -> Result<(), Problem> {
        let checked = rules.as_deref().map_or(Ok(()), check);
        self.engine.shared.refuse_upload(self.id, self.caller, path, checked).await
    }

    /// A problem on its way to the caller; a refusal is told of.
    pub(super) async fn refused<T>(&self, path: &str, problem: Problem) -> Result<T, Problem> {
        let _ = self.engine.shared.refuse_upload(self.id, self.caller, path, Err(problem.clone())).await;
        Err(problem)
    }

    /// Whether a file may be given a name that it did not have, or changed under the one that it has.
    pub(super) async fn check_target(&self, path: &str, root: bool) -> Result<(), Problem> {
        let rules = self.upload_rules().await?;
        self.check_upload(&rules, path, |rules| rules.check_name(&plain(path, root))).await
    }

    /// Which files a patch makes or changes, its own reader says.
    pub(super) async fn check_patch(&self, request: &ApplyPatch) -> Result<(), Problem> {
        let rules = self.upload_rules().await?;
        if rules.is_none() {
            return Ok(());
        }
        let rehearsal = ToClerk::Patch(ApplyPatch { dry_run: true, ..request.clone() });
        let files = match self.ask(&rehearsal, Repeat::Safe).await? {
            (FromClerk::Patched(patched), _) => patched.files,
            other => return Err(super::unexpected(other.0)),
        };
        for file in files.iter().filter(|file| file.change != PatchChange::Deleted) {
            let bytes = request.patch.len() as u64;
            let check = |rules: &UploadRules| {
                rules.check_name(&plain(&file.path, true)).and_then(|()| rules.check_size(&file.path, bytes))
            };
            self.check_upload(&rules, &file.path, check).await?;
        }
        self.check_upload(&rules, &request.path, |rules| rules.check_count(files.len() as u64)).await
    }

    /// Whether one request may bring this many files.
    pub async fn check_count(&self, files: u64) -> Result<(), Problem> {
        let rules = self.upload_rules().await?;
        self.check_upload(&rules, "", |rules| rules.check_count(files)).await
    }
}
