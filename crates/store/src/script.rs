//! What a transaction writes, said to SQLite in few words: a question to its thread and the answer take ten times as long as most
//! statements do ([0044](../../../docs/decisions/0044-a-transaction-is-said-in-few-words.md)).
//!
//! Statements whose outcome nobody needs at once are gathered here and sent together. Whoever reads sends what is gathered first.

use crate::batch::Trouble;
use futures_util::TryStreamExt;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Arguments, AssertSqlSafe, Either, Executor, SqliteConnection};
use std::borrow::Cow;

/// Statements that are sent together. More would be of little use, and SQLite copies what is left of the text for each.
const TOGETHER: usize = 32;

/// Scripts of so many statements at most are kept parsed: there are few of them, and they come again.
const KEPT_PARSED: usize = 6;

/// What is put into a hole of a statement.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Text(String),
    Number(i64),
    Bytes(Vec<u8>),
    Null,
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Value {
        Value::Number(number)
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Value {
        Value::Bytes(bytes.into())
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Value {
        value.map_or(Value::Null, Into::into)
    }
}

/// One statement, with holes `$1`, `$2`… and what goes into them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Statement {
    text: Cow<'static, str>,
    values: Vec<Value>,
    expects: Expects,
}

/// What a statement is to do. One that does something else has a reason that must be looked into.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Expects {
    Nothing,
    /// To insert a row.
    Insert,
    /// To change this session.
    Save(String),
}

impl Statement {
    pub(crate) fn new(text: impl Into<Cow<'static, str>>) -> Statement {
        Statement { text: text.into(), values: Vec::new(), expects: Expects::Nothing }
    }

    pub(crate) fn bind(mut self, value: impl Into<Value>) -> Statement {
        self.values.push(value.into());
        self
    }

    pub(crate) fn expecting(self, expects: Expects) -> Statement {
        Statement { expects, ..self }
    }
}

#[derive(Default)]
pub(crate) struct Script {
    waiting: Vec<Statement>,
    /// What was returned so far, in order.
    pub(crate) rows: Vec<SqliteRow>,
    /// What was sent and did nothing although it was to.
    pub(crate) unmet: Vec<Expects>,
}

impl Script {
    pub(crate) fn say(&mut self, statement: Statement) {
        self.waiting.push(statement);
    }

    /// Sends what has been said.
    pub(crate) async fn send(&mut self, connection: &mut SqliteConnection) -> Result<(), Trouble> {
        let waiting = std::mem::take(&mut self.waiting);
        for statements in waiting.chunks(TOGETHER) {
            let (text, arguments) = joined(statements)?;
            let query = sqlx::query_with(AssertSqlSafe(text), arguments);
            let query = query.persistent(statements.len() <= KEPT_PARSED);
            let mut results = (&mut *connection).fetch_many(query);
            let mut expected = statements.iter().map(|statement| &statement.expects);
            loop {
                let result = match results.try_next().await {
                    Ok(Some(result)) => result,
                    Ok(None) => break,
                    // Who speaks of a session that was not inserted is refused.
                    Err(_) if self.unmet.contains(&Expects::Insert) => return Err(Trouble::Contested),
                    Err(error) => return Err(error.into()),
                };
                match result {
                    Either::Right(row) => self.rows.push(row),
                    Either::Left(done) => match expected.next() {
                        Some(Expects::Nothing) | None => {}
                        Some(expects) if done.rows_affected() == 0 => self.unmet.push(expects.clone()),
                        Some(_) => {}
                    },
                }
            }
        }
        Ok(())
    }

    /// Sends what has been said, and then this; says whether it did anything.
    pub(crate) async fn send_with(
        &mut self,
        connection: &mut SqliteConnection,
        statement: Statement,
    ) -> Result<bool, Trouble> {
        self.send(connection).await?;
        self.say(statement.expecting(Expects::Insert));
        self.send(connection).await?;
        Ok(self.unmet.pop_if(|unmet| *unmet == Expects::Insert).is_none())
    }
}

/// Holes are counted through all statements.
fn joined(statements: &[Statement]) -> Result<(String, SqliteArguments), sqlx::Error> {
    let mut text = String::with_capacity(statements.iter().map(|statement| statement.text.len() + 16).sum());
    let mut arguments = SqliteArguments::default();
    let mut before = 0;
    for Statement { text: one, values, .. } in statements {
        if !text.is_empty() {
            text.push_str(";\n");
        }
        put_with_holes_from(&mut text, one, before);
        before += values.len();
        for value in values {
            let added = match value {
                Value::Text(text) => arguments.add(text.clone()),
                Value::Number(number) => arguments.add(*number),
                Value::Bytes(bytes) => arguments.add(bytes.clone()),
                Value::Null => arguments.add(None::<i64>),
            };
            added.map_err(sqlx::Error::Encode)?;
        }
    }
    Ok((text, arguments))
}

/// `$2` with three holes before it is `$5`. Texts of ours have `$` for nothing else.
fn put_with_holes_from(text: &mut String, one: &str, before: usize) {
    let mut parts = one.split('$');
    text.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let end = part.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(part.len());
        let (number, rest) = part.split_at(end);
        let number = number.parse::<usize>().unwrap_or_default() + before;
        text.push_str(&format!("${number}{rest}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_counted_through_all_statements() {
        let insert = Statement::new("INSERT INTO t (a, b) VALUES ($1, $2)").bind("x").bind(None::<i64>);
        let delete = Statement::new("DELETE FROM t WHERE a = $1 OR b = $1 AND c = $12").bind(7);
        let (text, arguments) = joined(&[insert, delete.clone()]).expect("a script");
        assert_eq!(
            text,
            "INSERT INTO t (a, b) VALUES ($1, $2);\nDELETE FROM t WHERE a = $3 OR b = $3 AND c = $14"
        );
        assert_eq!(arguments.len(), 3);
        assert_eq!(joined(std::slice::from_ref(&delete)).expect("a script").0, delete.text);
    }
}
