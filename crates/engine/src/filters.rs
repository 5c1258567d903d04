//! The operator's filters, where calls come in: what is refused, in the operator's words, and told in the journal.

use crate::files::contents::Source;
use crate::operator::Filters;
use crate::shared::Shared;
use crate::validate::shown;
use bytes::Bytes;
use serde_json::{Value, json};
use std::sync::Arc;
use workroom_store::Change;
use workroom_types::{Caller, Problem, ProblemCode, Timestamp, UploadRules};

/// As much of a command as the journal keeps of one that was refused.
const MOST_TEXT: usize = 200;

/// What a caller gives as a command, whichever way.
pub(crate) fn text_of(command: Option<&str>, argv: Option<&[String]>) -> String {
    match (command, argv) {
        (Some(command), _) => command.to_owned(),
        (None, Some(argv)) => argv.join(" "),
        (None, None) => String::new(),
    }
}

impl Shared {
    /// The filters that a session's owner is under, if there are any.
    fn filters_of(&self, owner: &str) -> Option<Filters> {
        let file = self.operator.current();
        let filters = &file.filters;
        let any = filters.upload.is_some() || !filters.commands.is_empty();
        (any && !filters.exempt.iter().any(|exempt| exempt == owner)).then(|| filters.clone())
    }

    /// Refuses a command that the operator does not want to be given.
    pub(crate) async fn filter_command(
        &self,
        (id, owner): (&str, &str),
        caller: &Caller,
        command: &str,
    ) -> Result<(), Problem> {
        let Some(filters) = self.filters_of(owner) else { return Ok(()) };
        let Some(rule) = filters.commands.iter().find(|rule| rule.matches(command)) else { return Ok(()) };
        let text: String = command.chars().take(MOST_TEXT).collect();
        let body = json!({
            "filter": "command", "pattern": rule.pattern(), "reason": rule.reason, "command": text,
        });
        self.tell_refused(id, caller, body).await;
        let detail = format!("the command \"{}\" is not to be given on this server", shown(command));
        Err(Problem::new(ProblemCode::Filtered, detail, rule.reason.clone()))
    }

    /// What may be uploaded to a session.
    pub(crate) fn upload_rules(&self, owner: &str) -> Option<Arc<UploadRules>> {
        Some(Arc::new(self.filters_of(owner)?.upload?.rules()))
    }

    /// Whether whole sessions may be taken up for an owner.
    pub(crate) fn filter_session_import(&self, owner: &str) -> Result<(), Problem> {
        let Some(upload) = self.filters_of(owner).and_then(|filters| filters.upload) else { return Ok(()) };
        if upload.session_imports {
            return Ok(());
        }
        Err(upload.rules().refusal("a whole session is not taken, because nobody looks at its files".into()))
    }

    /// Tells of a refusal, and gives it back.
    pub(crate) async fn refuse_upload(
        &self,
        id: &str,
        caller: &Caller,
        path: &str,
        checked: Result<(), Problem>,
    ) -> Result<(), Problem> {
        if let Err(problem) = &checked
            && problem.code == ProblemCode::Filtered
        {
            let body =
                json!({ "filter": "upload", "path": path, "detail": problem.detail, "reason": problem.hint });
            self.tell_refused(id, caller, body).await;
        }
        checked
    }

    async fn tell_refused(&self, id: &str, caller: &Caller, body: Value) {
        let entry = Change::Journal {
            session: id.to_owned(),
            at: Timestamp::now(),
            actor: caller.name.clone(),
            kind: "filter.refused".into(),
            body,
        };
        self.store.note(entry).await;
    }
}

/// Contents that may not be longer than the operator says.
pub(crate) struct Measured<'a, S> {
    source: &'a mut S,
    rules: Option<Arc<UploadRules>>,
    path: String,
    bytes: u64,
}

impl<'a, S: Source> Measured<'a, S> {
    pub(crate) fn new(source: &'a mut S, rules: Option<Arc<UploadRules>>, path: &str) -> Measured<'a, S> {
        Measured { source, rules, path: path.to_owned(), bytes: 0 }
    }
}

impl<S: Source> Source for Measured<'_, S> {
    async fn next(&mut self) -> Result<Option<Bytes>, Problem> {
        let piece = self.source.next().await?;
        if let (Some(rules), Some(piece)) = (&self.rules, &piece) {
            self.bytes += piece.len() as u64;
            rules.check_size(&self.path, self.bytes)?;
        }
        Ok(piece)
    }
}
