//! `workroom token`: who may do what, made, listed and revoked.

use crate::output::{ago, clean};
use crate::remote::{Failure, complain, perform};
use crate::table::Table;
use crate::{EXIT_FAULT, arguments, output, which};
use serde_json::json;
use std::process::ExitCode;
use workroom_client::Client;
use workroom_types::{CreateToken, NewToken, Problem, ProblemCode, Timestamp, TokenInfo, TokenScope};

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Make a token and print it, this once
    Create(Create),
    /// List the tokens, without their secrets
    Ls(Ls),
    /// Revoke tokens
    Rm(Rm),
}

#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  workroom token create --owner ada --expires 30d --name 'ada, laptop'",
    group = clap::ArgGroup::new("scope").required(true).args(["admin", "owner", "session"])
)]
struct Create {
    /// For everything, on anybody's behalf
    #[arg(long)]
    admin: bool,
    /// For the sessions of this owner
    #[arg(long, value_name = "OWNER")]
    owner: Option<String>,
    /// For this session alone
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
    /// For looking only
    #[arg(long)]
    read_only: bool,
    /// Until this long from now (12h, 30d) [default: until it is revoked]
    #[arg(long, value_name = "TIME", value_parser = arguments::seconds)]
    expires: Option<u64>,
    /// A name for people, up to 120 characters
    #[arg(long, value_name = "NAME", default_value = "")]
    name: String,
    /// Print JSON, with the secret in `token`
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[command(after_help = "Example:\n  workroom token ls --json | jq -r '.tokens[].id'")]
struct Ls {
    /// Print JSON: {"tokens": […]}
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[command(after_help = "Example:\n  workroom token rm 0f3a9c")]
struct Rm {
    /// Their ids, as `workroom token ls` shows them
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,
    /// Print one JSON object for each
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: Options) -> ExitCode {
    match options.verb {
        Verb::Create(options) => perform(options.json, async |client| create(&client, options).await),
        Verb::Ls(options) => perform(options.json, async |client| list(&client, &options).await),
        Verb::Rm(options) => perform(options.json, async |client| revoke(&client, &options).await),
    }
}

async fn create(client: &Client, options: Create) -> Result<ExitCode, Failure> {
    let session = match &options.session {
        Some(session) => Some(which::session(client, session).await?),
        None => None,
    };
    let scope = match (&options.owner, &session) {
        (Some(_), _) => TokenScope::User,
        (None, Some(_)) => TokenScope::Session,
        (None, None) => TokenScope::Admin,
    };
    let request = CreateToken {
        scope,
        owner: options.owner,
        session,
        read_only: options.read_only,
        expires_in: options.expires,
        name: options.name,
    };
    let made = client.create_token(&request).await?;
    let secret = secret(&made)?;
    if options.json {
        output::json(&made)?;
        return Ok(ExitCode::SUCCESS);
    }
    // The secret alone on stdout, to be put into a variable or a file.
    output::line(secret)?;
    let until = made.info.expires.map(|end| format!(", until {}", end.to_rfc3339())).unwrap_or_default();
    complain(&format!(
        "token {} for {}{until}; it is shown this once, and `workroom token rm {}` revokes it",
        made.info.id,
        reach(&made.info),
        made.info.id
    ));
    Ok(ExitCode::SUCCESS)
}

/// It is told once: if that answer was lost on its way, the token is of no use to anybody.
fn secret(made: &NewToken) -> Result<&str, Failure> {
    made.token.as_deref().ok_or_else(|| {
        let detail = format!("token {} was made, and its secret was lost with the connection", made.info.id);
        Failure::problem(detail, format!("`workroom token rm {}`, then make another", made.info.id))
    })
}

async fn list(client: &Client, options: &Ls) -> Result<ExitCode, Failure> {
    let list = client.tokens().await?;
    if options.json {
        output::json(&list)?;
    } else {
        output::text(&table(&list.tokens, Timestamp::now()))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn revoke(client: &Client, options: &Rm) -> Result<ExitCode, Failure> {
    let mut status = ExitCode::SUCCESS;
    // Revoking what never was succeeds too, and somebody who has mistyped is not to be told so.
    let known = client.tokens().await?;
    for id in &options.ids {
        let outcome = match known.tokens.iter().any(|token| token.id == *id) {
            true => client.revoke_token(id).await,
            false => Err(no_token(id).into()),
        };
        match outcome {
            Ok(()) if options.json => output::json(&json!({"id": id, "revoked": true}))?,
            Ok(()) => output::line(&format!("{}  revoked", clean(id)))?,
            Err(error) => {
                status = ExitCode::from(EXIT_FAULT);
                if options.json {
                    output::json(&json!({"id": id, "error": Failure::from(error).document()}))?;
                } else {
                    complain(&format!("{id}: {error}"));
                }
            }
        }
    }
    Ok(status)
}

fn no_token(id: &str) -> Problem {
    let detail = format!("there is no token \"{id}\"");
    Problem::new(ProblemCode::NotFound, detail, "`workroom token ls` lists those that there are")
}

/// What a token opens, in words.
fn reach(token: &TokenInfo) -> String {
    let what = match token.scope {
        TokenScope::Admin => "everything".to_owned(),
        TokenScope::User => format!("the sessions of {}", token.owner.as_deref().unwrap_or("?")),
        TokenScope::Session => format!("session {}", token.session.as_deref().unwrap_or("?")),
    };
    if token.read_only { format!("{what}, read-only") } else { what }
}

fn table(tokens: &[TokenInfo], now: Timestamp) -> String {
    let mut table = Table::new(&["id", "name", "for", "age", "expires"]);
    for token in tokens {
        let expires = match token.expires {
            None => "never".to_owned(),
            Some(end) if end <= now => "expired".to_owned(),
            Some(end) => format!("in {}", ago(end, now)),
        };
        table.row([
            &clean(&token.id),
            &clean(&token.name),
            &clean(&reach(token)),
            &ago(now, token.created),
            &expires,
        ]);
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_a_table_without_secrets() {
        let now = Timestamp(1_000_000_000_000);
        let admin = TokenInfo {
            id: "t1".into(),
            name: "first".into(),
            scope: TokenScope::Admin,
            owner: None,
            session: None,
            read_only: false,
            created: Timestamp(now.0 - 5_000),
            expires: None,
        };
        let user = TokenInfo {
            id: "t2".into(),
            scope: TokenScope::User,
            owner: Some("ada".into()),
            read_only: true,
            expires: Some(now.plus_seconds(7200)),
            ..admin.clone()
        };
        assert_eq!(
            table(&[admin, user], now),
            "ID  NAME   FOR                             AGE  EXPIRES\n\
             t1  first  everything                      5s   never\n\
             t2  first  the sessions of ada, read-only  5s   in 2h\n"
        );
    }
}
