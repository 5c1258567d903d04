//! From what a policy and a call name to values: what a room's commands are given.

use super::safe::{Holder, Safe};
use std::collections::BTreeMap;
use std::sync::Arc;
use workroom_proto::Secret;
use workroom_store::{SecretRow, Store};
use workroom_types::{Problem, ProblemCode, SecretPolicy, SecretScope};
use workroom_vault::{EnvironmentName, Redactor, SHORTEST, SecretName, SecretValue};

/// Bytes of one variable that the kernel takes, with its name.
const LARGEST_VARIABLE: usize = 128 << 10;

/// What `redact_values` of one call may be.
const MOST_VALUES: usize = 64;

/// What `[REDACTED:…]` calls a value that a call named without a name.
const VALUE: &str = "value";

/// A secret that was opened.
#[derive(Clone)]
pub(crate) struct Known {
    pub(crate) name: SecretName,
    pub(crate) value: Arc<SecretValue>,
}

impl Known {
    pub(crate) fn is(&self, other: &Known) -> bool {
        self.name == other.name && self.value.expose() == other.value.expose()
    }

    /// On its way to a guest, under this name.
    pub(crate) fn sent_as(&self, name: &str) -> Secret {
        Secret { name: name.to_owned(), value: self.value.expose().to_vec() }
    }
}

/// What a policy comes to.
#[derive(Default)]
pub(crate) struct Resolved {
    pub(crate) env: Vec<(String, Known)>,
    pub(crate) files: Vec<(String, Known)>,
    /// What a scope has and is not given: scope, name, why.
    pub(crate) skipped: Vec<(SecretScope, String, String)>,
    /// Why no command can be started: something that is named is not there.
    pub(crate) missing: Option<Problem>,
}

/// Where a session's secrets are looked for.
pub(crate) struct Seeker<'s> {
    pub(crate) safe: &'s Safe,
    pub(crate) store: &'s Store,
    pub(crate) owner: &'s str,
    pub(crate) session: &'s str,
}

impl Seeker<'_> {
    fn holder(&self, scope: SecretScope) -> Holder {
        match scope {
            SecretScope::Global => Holder::global(),
            SecretScope::User => Holder::user(self.owner),
            SecretScope::Session => Holder::session(self.session),
        }
    }

    /// By name: the session's, else its owner's, else a global one.
    pub(crate) async fn named(&self, name: &str) -> Result<Known, Problem> {
        let name = secret_name(name)?;
        for scope in [SecretScope::Session, SecretScope::User, SecretScope::Global] {
            let holder = self.holder(scope);
            let place = (holder.word(), holder.whose.as_str(), name.as_str());
            let found = self.store.secret(place).await.map_err(crate::storage)?;
            if let Some(row) = found.filter(|row| row.sealed.is_some()) {
                return self.known(name, &row).await;
            }
        }
        Err(Problem::new(
            ProblemCode::SecretNotFound,
            format!("there is no secret {name} of the session, of its owner or of all"),
            format!("set it with `workroom secret set {name}`, or take it out of the policy or the call"),
        ))
    }

    async fn known(&self, name: SecretName, row: &SecretRow) -> Result<Known, Problem> {
        let value = Arc::new(self.safe.open(self.store, row).await?);
        Ok(Known { name, value })
    }

    pub(crate) async fn policy(&self, policy: &SecretPolicy) -> Result<Resolved, Problem> {
        let mut resolved = Resolved::default();
        // What is more particular is injected last, and wins.
        let mut scopes = policy.inject.clone();
        scopes.sort();
        scopes.dedup();
        let mut env: BTreeMap<String, Known> = BTreeMap::new();
        for scope in scopes {
            let holder = self.holder(scope);
            for row in self.store.secrets(holder.word(), &holder.whose).await.map_err(crate::storage)? {
                let given = match secret_name(&row.name) {
                    Ok(name) => self.known(name, &row).await,
                    Err(problem) => Err(problem),
                };
                match given.and_then(|known| fits(&row.name, &known).map(|()| known)) {
                    Ok(known) => drop(env.insert(row.name, known)),
                    Err(problem) => resolved.skipped.push((scope, row.name, problem.detail)),
                }
            }
        }
        for (variable, name) in &policy.env {
            match self.named(name).await.and_then(|known| fits(variable, &known).map(|()| known)) {
                Ok(known) => drop(env.insert(variable.clone(), known)),
                Err(problem) => drop(resolved.missing.get_or_insert(problem)),
            }
        }
        for (file, name) in &policy.files {
            match self.named(name).await {
                Ok(known) => resolved.files.push((file.clone(), known)),
                Err(problem) => drop(resolved.missing.get_or_insert(problem)),
            }
        }
        resolved.env = env.into_iter().collect();
        Ok(resolved)
    }

    /// What a call names for itself.
    pub(crate) async fn call(
        &self,
        variables: &BTreeMap<String, String>,
    ) -> Result<Vec<(String, Known)>, Problem> {
        let mut env = Vec::with_capacity(variables.len());
        for (variable, name) in variables {
            let known = self.named(name).await?;
            fits(variable, &known)?;
            env.push((variable.clone(), known));
        }
        Ok(env)
    }
}

pub(crate) fn secret_name(name: &str) -> Result<SecretName, Problem> {
    SecretName::new(name).map_err(|error| Problem::invalid(error.to_string(), ""))
}

/// Whether a variable of this name can carry this value.
fn fits(variable: &str, known: &Known) -> Result<(), Problem> {
    EnvironmentName::new(variable).map_err(|error| Problem::invalid(error.to_string(), ""))?;
    let value = known.value.expose();
    let name = &known.name;
    if value.contains(&0) {
        return Err(Problem::invalid(
            format!("the secret {name} has a NUL byte in it, and no variable can hold that"),
            "give it as a file",
        ));
    }
    if variable.len() + value.len() + 2 > LARGEST_VARIABLE {
        return Err(Problem::invalid(
            format!("the secret {name} is too long for a variable"),
            "give it as a file",
        ));
    }
    Ok(())
}

/// What a call's `secret_env` may say, before anything is looked for.
pub(crate) fn check_call(
    variables: &BTreeMap<String, String>,
    plain: &BTreeMap<String, String>,
    values: &[String],
) -> Result<(), Problem> {
    for (variable, name) in variables {
        EnvironmentName::new(variable.as_str()).map_err(|error| Problem::invalid(error.to_string(), ""))?;
        secret_name(name)?;
        if plain.contains_key(variable) {
            return Err(Problem::invalid(
                format!("the variable {variable} is in env and in secret_env"),
                "leave it out of one of them",
            ));
        }
    }
    if values.len() > MOST_VALUES {
        return Err(Problem::invalid(
            format!("{} redact_values are more than {MOST_VALUES}", values.len()),
            "",
        ));
    }
    for (at, value) in values.iter().enumerate() {
        if value.trim_ascii().len() < SHORTEST || value.len() > workroom_vault::LARGEST {
            return Err(Problem::invalid(
                format!("redact_values[{at}] has {} bytes", value.len()),
                "what is looked for in output has 4 to 65536 bytes, white space around it not counted",
            ));
        }
    }
    Ok(())
}

/// What a policy's part may say.
pub(crate) fn check_policy(policy: &SecretPolicy) -> Result<(), Problem> {
    check_call(&policy.env, &BTreeMap::new(), &[])?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    for (file, name) in &policy.files {
        let is_file = (1..=128).contains(&file.len()) && file.bytes().all(is_plain) && !file.starts_with('.');
        if !is_file {
            return Err(Problem::invalid(
                format!("\"{}\" cannot be a file of /run/secrets", crate::validate::shown(file)),
                "names are 1 to 128 letters, digits, ., _ and -, and do not begin with a dot",
            ));
        }
        secret_name(name)?;
    }
    if policy.env.len() + policy.files.len() > MOST_NAMED {
        return Err(Problem::invalid(
            format!("a policy that names {} secrets names too many", policy.env.len() + policy.files.len()),
            format!("the most is {MOST_NAMED}"),
        ));
    }
    Ok(())
}

/// Secrets that one policy names.
const MOST_NAMED: usize = 128;

/// Further values of one call, as the guest is told and as they are looked for here.
pub(crate) fn values(values: &[String]) -> Vec<Known> {
    let known = |value: &String| {
        let name = SecretName::new(VALUE).ok()?;
        Some(Known { name, value: Arc::new(SecretValue::new(value.as_bytes()).ok()?) })
    };
    values.iter().filter_map(known).collect()
}

/// What is looked for.
pub(crate) fn compile<'k>(known: impl Iterator<Item = &'k Known>) -> Redactor {
    Redactor::new(known.map(|known| (&known.name, &*known.value)))
}
