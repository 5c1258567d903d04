//! Secrets of a session's room: what its commands are given, and what must not be seen of it.
//!
//! What a room was given it may show at any time, so it stays in the set that is looked for until the room ends, also
//! when the secret has another value by then or is gone. Only what a room was given is looked for: a room that could
//! have its guesses of other secrets confirmed would find them out letter by letter.

use super::Actor;
use crate::mounts::mounter::Mounter;
use crate::room::gone;
use crate::secrets::redactors;
use crate::secrets::resolve::{self, Known, Seeker, compile};
use serde_json::json;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use workroom_proto::{Answer, Gift, MountTask, Question, ToGuest};
use workroom_store::Change;
use workroom_types::{CommandSpec, Problem, ProblemCode, Process, SecretPolicy};
use workroom_vault::{Redactor, SecretName, SecretValue, SharedRedactor};

/// What kind of part of a session says that a room of it was given secrets.
const PART: &str = "secrets";

/// What one room may be given, in all: it is held in the guest's memory, several times over.
const MOST_GIVEN: usize = 512;
const MOST_BYTES: usize = 8 << 20;

/// What a call names.
#[derive(Default)]
pub(crate) struct CallSecrets {
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) redact: Vec<String>,
}

impl CallSecrets {
    /// Checked, as far as that goes without looking for them.
    pub(crate) fn new(
        env: BTreeMap<String, String>,
        plain: &BTreeMap<String, String>,
        redact: Vec<String>,
    ) -> Result<CallSecrets, Problem> {
        resolve::check_call(&env, plain, &redact)?;
        Ok(CallSecrets { env, redact })
    }
}

/// What a room has.
#[derive(Default)]
pub(super) struct RoomSecrets {
    /// The number of the room.
    room: u64,
    /// What of the policy `env` comes from, and how many changes of secrets there were then.
    from: Option<(SecretPolicy, u64)>,
    /// For every command.
    env: Vec<(String, Known)>,
    /// Why no command can be started.
    missing: Option<Problem>,
    /// All that it was ever given.
    given: Vec<Known>,
    has_files: bool,
    /// Whether it is written down that it was given something.
    is_marked: bool,
}

/// What must not be seen of one call.
pub(super) struct Hidden {
    pub(super) redactor: Arc<Redactor>,
    /// If the call names values of its own.
    own: Option<SharedRedactor>,
}

impl Hidden {
    /// Of a command, for the journal.
    pub(super) fn clean_text(&self, text: &mut String) {
        if !self.redactor.is_empty() {
            redactors::clean_text(&self.redactor, text);
        }
    }

    /// For what is written to it: the session's set, or its own.
    pub(super) fn shared(&self, session: &SharedRedactor) -> SharedRedactor {
        self.own.as_ref().unwrap_or(session).clone()
    }

    pub(super) fn clean_process(&self, process: &mut Process) {
        redactors::clean_process(&self.redactor, process);
    }
}

impl Actor {
    fn secret_policy(&self) -> Option<SecretPolicy> {
        self.row.session.room_policy.as_ref()?.secrets.clone()
    }

    /// Gives a command what the policy and its call name, and has the guest look for it. Without either it does nothing.
    pub(super) async fn give_secrets(
        &mut self,
        command: u32,
        spec: &mut CommandSpec,
        call: &CallSecrets,
    ) -> Result<Hidden, Problem> {
        let has_policy = self.row.session.room_policy.as_ref().is_some_and(|policy| policy.secrets.is_some());
        if has_policy {
            Box::pin(self.take_policy_secrets()).await?;
            if let Some(problem) = &self.secrets.missing {
                return Err(problem.clone());
            }
            for (variable, known) in &self.secrets.env {
                // What the call says itself is meant.
                if !has_variable(spec, variable) && !call.env.contains_key(variable) {
                    spec.env.push(assignment(variable, known));
                }
            }
        }
        if !call.env.is_empty() {
            let env = Box::pin(self.named(&call.env)).await?;
            Box::pin(self.give(env.iter().map(|(_, known)| known.clone()).collect(), None)).await?;
            spec.env.extend(env.iter().map(|(variable, known)| assignment(variable, known)));
        }
        Box::pin(self.hide(command, &call.redact)).await
    }

    async fn named(&self, variables: &BTreeMap<String, String>) -> Result<Vec<(String, Known)>, Problem> {
        let session = &self.row.session;
        let (safe, store) = (&self.shared.safe, &*self.shared.store);
        Seeker { safe, store, owner: &session.owner, session: &session.id }.call(variables).await
    }

    /// Has the guest look for further values in one command's output.
    pub(super) async fn hide(&mut self, command: u32, values: &[String]) -> Result<Hidden, Problem> {
        if values.is_empty() {
            return Ok(Hidden { redactor: self.redactor.get(), own: None });
        }
        let own = resolve::values(values);
        let Some(room) = &self.room else { return Err(gone("the session has no room")) };
        let sent = own.iter().map(|known| known.sent_as(known.name.as_str())).collect();
        room.send(&ToGuest::Redact { command, values: sent }, &[]).await?;
        let all = self.secrets.given.iter().chain(&own);
        let own = SharedRedactor::new(compile(all));
        Ok(Hidden { redactor: own.get(), own: Some(own) })
    }

    /// Looks whether the policy's secrets are still what the room has, and gives it what is new.
    async fn take_policy_secrets(&mut self) -> Result<(), Problem> {
        let policy = self.secret_policy();
        let generation = self.shared.safe.generation();
        self.new_room();
        let is_known = self
            .secrets
            .from
            .as_ref()
            .is_some_and(|(from, at)| *at == generation && Some(from) == policy.as_ref());
        if is_known {
            return Ok(());
        }
        let policy = policy.unwrap_or_default();
        let session = &self.row.session;
        let (safe, store) = (&self.shared.safe, &*self.shared.store);
        let seeker = Seeker { safe, store, owner: &session.owner, session: &session.id };
        let resolved = seeker.policy(&policy).await?;
        let known = resolved.env.iter().chain(&resolved.files).map(|(_, known)| known.clone()).collect();
        let files = (self.secrets.has_files || !resolved.files.is_empty()).then_some(&resolved.files);
        self.give(known, files.map(Vec::as_slice)).await?;
        self.secrets.has_files = !resolved.files.is_empty();
        for (scope, name, why) in resolved.skipped {
            let body = json!({ "name": name, "scope": scope, "reason": why });
            self.shared.store.note(self.entry("secret.skipped", "server", body)).await;
        }
        (self.secrets.env, self.secrets.missing) = (resolved.env, resolved.missing);
        self.secrets.from = Some((policy, generation));
        Ok(())
    }

    /// A room that has been replaced has nothing of what the one before it had.
    fn new_room(&mut self) {
        let room = self.row.session.counters.starts;
        if self.secrets.room != room {
            let is_marked = self.secrets.is_marked;
            self.secrets = RoomSecrets { room, is_marked, ..RoomSecrets::default() };
        }
    }

    /// Tells the guest of secrets that it does not know, and of all files.
    async fn give(&mut self, known: Vec<Known>, files: Option<&[(String, Known)]>) -> Result<(), Problem> {
        self.new_room();
        let mut new: Vec<Known> = Vec::new();
        for known in known {
            if !self.secrets.given.iter().chain(&new).any(|given| given.is(&known)) {
                new.push(known);
            }
        }
        if new.is_empty() && files.is_none() {
            return Ok(());
        }
        let all = || self.secrets.given.iter().chain(&new);
        let bytes: usize = all().map(|known| known.value.expose().len()).sum();
        if all().count() > MOST_GIVEN || bytes > MOST_BYTES {
            let detail =
                format!("the room was given {} secrets of {bytes} bytes, which is too much", all().count());
            return Err(Problem::limit("secrets", detail, "start the session anew, or name fewer of them"));
        }
        // First here, then there, then in the room: nothing of it is shown before it is looked for.
        self.redactor.set(compile(all()));
        self.shared.redactors.put(&self.row.session.id, &self.redactor);
        self.mark_given().await?;
        let gift = Gift {
            redact: new.iter().map(|known| known.sent_as(known.name.as_str())).collect(),
            files: files.map(|files| files.iter().map(|(file, known)| known.sent_as(file)).collect()),
        };
        let give = Question::Give(Box::new(gift));
        let mut answer = self.ask(give.clone()).await?.0;
        if answer == Answer::NoPlace {
            let place = self.place_for_secrets().await?;
            answer = self.ask_with(give, place).await?.0;
        }
        match answer {
            Answer::Done => {}
            Answer::Failed { why } => return Err(no_files(&why)),
            Answer::NoPlace => return Err(no_files("/run is not as it was made, and has no place for them")),
            _ => return Err(gone("the room does not answer as it should")),
        }
        self.secrets.given.extend(new);
        Ok(())
    }

    /// Makes a place for files in a room that has none yet.
    async fn place_for_secrets(&self) -> Result<Vec<OwnedFd>, Problem> {
        let Some(room) = &self.room else { return Err(gone("the session has no room")) };
        if !self.shared.machine.is_root {
            // It had one from the start, unless there was no place for it.
            return Ok(Vec::new());
        }
        let made = Mounter::run(&self.shared, MountTask::Secrets, Some(room.process())).await;
        made.map_err(|problem| no_files(&problem.detail))
    }

    /// For a next server, which asks the guest what it looks for.
    async fn mark_given(&mut self) -> Result<(), Problem> {
        if self.secrets.is_marked {
            return Ok(());
        }
        let mark = Change::PutPart {
            session: self.row.session.id.clone(),
            kind: PART.to_owned(),
            id: "given".to_owned(),
            doc: json!({}),
        };
        self.shared.store.commit(vec![mark]).await.map_err(crate::storage)?;
        self.secrets.is_marked = true;
        Ok(())
    }

    /// Of a room that stands: what its policy names is there before anybody has a command for it.
    pub(super) async fn secrets_at_start(&mut self) {
        let has_policy = self.row.session.room_policy.as_ref().is_some_and(|policy| policy.secrets.is_some());
        if (has_policy || self.secrets.has_files)
            && self.room.is_some()
            && let Err(problem) = Box::pin(self.take_policy_secrets()).await
        {
            tracing::warn!(session = %self.row.session.id, %problem, "a room has not all of its secrets");
            let body = json!({ "reason": problem.to_string() });
            self.shared.store.note(self.entry("secret.failed", "server", body)).await;
        }
    }

    /// Of a room that an earlier server has given secrets to: it knows best what it has seen.
    pub(super) async fn secrets_of_adopted(&mut self) {
        let marked = self.shared.store.parts(&self.row.session.id, PART).await.unwrap_or_default();
        if marked.is_empty() {
            return;
        }
        self.secrets.room = self.row.session.counters.starts;
        self.secrets.given.clear();
        // What it has as files is replaced by what the policy says now.
        (self.secrets.is_marked, self.secrets.has_files) = (true, true);
        let Ok((Answer::Redacted(known), _)) = self.ask(Question::Redacted).await else { return };
        for secret in known.into_iter().take(MOST_GIVEN) {
            let name = SecretName::new(secret.name.clone());
            if let (Ok(name), Ok(value)) = (name, SecretValue::new(secret.value.clone())) {
                self.secrets.given.push(Known { name, value: Arc::new(value) });
            }
        }
        self.redactor.set(compile(self.secrets.given.iter()));
        self.shared.redactors.put(&self.row.session.id, &self.redactor);
        self.secrets_at_start().await;
    }

    /// What must not be seen in an answer, taken out of it.
    pub(super) fn clean(&self, text: &mut String) {
        let redactor = self.redactor.get();
        if !redactor.is_empty() {
            redactors::clean_text(&redactor, text);
        }
    }
}

fn no_files(why: &str) -> Problem {
    Problem::new(
        ProblemCode::SecretsUnavailable,
        format!("secrets cannot be written to /run/secrets: {why}"),
        "give them as variables, or start the session anew",
    )
}

fn assignment(variable: &str, known: &Known) -> Vec<u8> {
    [variable.as_bytes(), b"=", known.value.expose()].concat()
}

fn has_variable(spec: &CommandSpec, variable: &str) -> bool {
    let is_it = |entry: &Vec<u8>| {
        entry.strip_prefix(variable.as_bytes()).is_some_and(|rest| rest.first() == Some(&b'='))
    };
    spec.env.iter().any(is_it)
}
