//! `workroom secret`: secrets set, listed and removed, and the master key rotated. Values come from stdin or a file, never
//! from the command line, which everybody on the machine can read.

use crate::output::{ago, clean};
use crate::remote::{Failure, complain, perform};
use crate::table::Table;
use crate::{output, which};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use std::io::{IsTerminal, Read};
use std::path::PathBuf;
use std::process::ExitCode;
use workroom_client::{Client, SecretOf};
use workroom_types::{Encoding, SecretInfo, SecretScope, SetSecret, Timestamp};

/// More than the largest value, so that one that is too large is told so.
const MOST_READ: u64 = (64 << 10) + 2;

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Set a secret to what is read from stdin or a file
    Set(Set),
    /// List secrets, without their values
    Ls(Ls),
    /// Remove secrets
    Rm(Rm),
    /// Make a new master key and seal everything under it
    Rotate(Rotate),
}

#[derive(clap::Args)]
#[group(multiple = false)]
struct Of {
    /// Of this session
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
    /// Of all users; for admins
    #[arg(long)]
    global: bool,
    /// Of this user; for admins [default: the caller]
    #[arg(long, value_name = "OWNER")]
    owner: Option<String>,
}

impl Of {
    async fn whose(self, client: &Client) -> Result<SecretOf, Failure> {
        match (self.session, self.global) {
            (Some(session), _) => Ok(SecretOf::Session(which::session(client, &session).await?)),
            (None, true) => Ok(SecretOf::Global),
            (None, false) => Ok(SecretOf::User(self.owner)),
        }
    }
}

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  printf %s \"$TOKEN\" | workroom secret set GITHUB_TOKEN\n  \
                        workroom secret set DEPLOY_KEY --file ~/.ssh/deploy --session 20260131-120000-0a1b2c3d")]
struct Set {
    /// Letters, digits and underscores, the first no digit
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    of: Of,
    /// Read the value from this file, as it is, and not from stdin
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Keep a line end at the end of stdin, which is else taken off
    #[arg(long)]
    keep_newline: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[command(after_help = "Example:\n  workroom secret ls --json | jq -r '.secrets[].name'")]
struct Ls {
    /// Of this session
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
    /// Of this user; for admins [default: the caller]
    #[arg(long, value_name = "OWNER", conflicts_with = "session")]
    owner: Option<String>,
    /// Print JSON: {"secrets": […]}
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[command(after_help = "Example:\n  workroom secret rm GITHUB_TOKEN")]
struct Rm {
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,
    #[command(flatten)]
    of: Of,
    /// Print one JSON object for each
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct Rotate {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: Options) -> ExitCode {
    match options.verb {
        Verb::Set(options) => perform(options.json, async |client| set(&client, options).await),
        Verb::Ls(options) => perform(options.json, async |client| list(&client, &options).await),
        Verb::Rm(options) => perform(options.json, async |client| remove(&client, options).await),
        Verb::Rotate(options) => perform(options.json, async |client| rotate(&client, &options).await),
    }
}

/// The value as it is read. A line that a person types, or `echo` writes, ends with a line end that is not meant.
fn value(options: &Set) -> Result<Vec<u8>, Failure> {
    let failed = |what: &str, error: std::io::Error| {
        Failure::problem(format!("the value cannot be read from {what}: {error}"), String::new())
    };
    let mut bytes = Vec::new();
    if let Some(path) = &options.file {
        let what = path.display().to_string();
        let file = std::fs::File::open(path).map_err(|error| failed(&what, error))?;
        file.take(MOST_READ).read_to_end(&mut bytes).map_err(|error| failed(&what, error))?;
        return Ok(bytes);
    }
    if std::io::stdin().is_terminal() {
        complain("type the value, which is shown as you type, and end it with Ctrl-D on a line of its own");
    }
    std::io::stdin().take(MOST_READ).read_to_end(&mut bytes).map_err(|error| failed("stdin", error))?;
    if !options.keep_newline && bytes.last() == Some(&b'\n') {
        bytes.pop();
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
    }
    Ok(bytes)
}

async fn set(client: &Client, options: Set) -> Result<ExitCode, Failure> {
    let value = value(&options)?;
    let request = match String::from_utf8(value) {
        Ok(value) => SetSecret { value, encoding: None },
        Err(error) => {
            SetSecret { value: STANDARD.encode(error.as_bytes()), encoding: Some(Encoding::Base64) }
        }
    };
    let of = options.of.whose(client).await?;
    let info = client.set_secret(&of, &options.name, &request).await?;
    if options.json {
        output::json(&info)?;
    } else {
        output::line(&format!("{}  version {}", clean(&info.name), info.version))?;
    }
    if info.redacted == Some(false) {
        complain("it has less than four bytes, and is not looked for in output");
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(client: &Client, options: &Ls) -> Result<ExitCode, Failure> {
    let list = match &options.session {
        Some(session) => client.session_secrets(&which::session(client, session).await?).await?,
        None => client.secrets(options.owner.as_deref()).await?,
    };
    if options.json {
        output::json(&list)?;
    } else {
        output::text(&table(&list.secrets, Timestamp::now()))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn remove(client: &Client, options: Rm) -> Result<ExitCode, Failure> {
    let of = options.of.whose(client).await?;
    for name in &options.names {
        client.remove_secret(&of, name).await?;
        match options.json {
            true => output::json(&json!({"name": name, "removed": true}))?,
            false => output::line(&format!("{}  removed", clean(name)))?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn rotate(client: &Client, options: &Rotate) -> Result<ExitCode, Failure> {
    let rotated = client.rotate_master_key().await?;
    if options.json {
        output::json(&rotated)?;
        return Ok(ExitCode::SUCCESS);
    }
    output::line(&format!("{} secrets are sealed under the key {}", rotated.resealed, clean(&rotated.key)))?;
    if rotated.unreadable > 0 {
        complain(&format!(
            "{} secrets do not open, and stay as they are; set them again",
            rotated.unreadable
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn table(secrets: &[SecretInfo], now: Timestamp) -> String {
    let mut table = Table::new(&["name", "scope", "of", "version", "age"]);
    for secret in secrets {
        let (scope, of) = match secret.scope {
            SecretScope::Global => ("global", None),
            SecretScope::User => ("user", secret.owner.as_deref()),
            SecretScope::Session => ("session", secret.session.as_deref()),
        };
        table.row([
            &clean(&secret.name),
            scope,
            &clean(of.unwrap_or("all")),
            &secret.version.to_string(),
            &ago(now, secret.created),
        ]);
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_a_table_without_values() {
        let now = Timestamp(1_000_000_000_000);
        let one = SecretInfo {
            name: "API_KEY".into(),
            scope: SecretScope::User,
            owner: Some("ada".into()),
            session: None,
            version: 3,
            created: Timestamp(now.0 - 5_000),
            redacted: None,
        };
        assert_eq!(
            table(&[one], now),
            "NAME     SCOPE  OF   VERSION  AGE\n\
             API_KEY  user   ada  3        5s\n"
        );
    }
}
