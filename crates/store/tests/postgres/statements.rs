//! The statements that sqlx says it has run, each once, in the order of their first use.

use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

pub(crate) type Heard = Arc<Mutex<Vec<String>>>;

/// From now on, in this whole process: SQLite is spoken to on threads of its own.
pub(crate) fn listen() -> Heard {
    let heard = Heard::default();
    let subscriber = tracing_subscriber::registry().with(Listener(heard.clone()));
    tracing::subscriber::set_global_default(subscriber).expect("nobody else listens");
    heard
}

/// What was heard since the last time, without what belongs to SQLite alone: how a connection is opened,
/// and sqlx's own books about migrations, which it keeps in the words of each database.
pub(crate) fn take(heard: &Heard) -> Vec<String> {
    let mut statements: Vec<String> = Vec::new();
    for statement in
        std::mem::take(&mut *heard.lock().expect("statements")).iter().flat_map(|said| one_by_one(said))
    {
        let is_of_sqlite = statement.starts_with("PRAGMA") || statement.contains("_sqlx_migrations");
        if !is_of_sqlite && !statements.contains(&statement) {
            statements.push(statement);
        }
    }
    statements
}

/// What is said to SQLite in one go, each for itself: its holes are counted from 1 then.
fn one_by_one(said: &str) -> Vec<String> {
    let numbers = |text: &str| -> Vec<usize> {
        let after = text.split('$').skip(1).map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
        after.filter_map(|number| number?.parse().ok()).collect()
    };
    let renumbered = |text: &str| {
        let before = numbers(text).into_iter().min().map_or(0, |least| least - 1);
        let mut parts = text.split('$');
        let mut one = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (number, rest) =
                part.split_at(part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len()));
            let number =
                number.parse::<usize>().map_or_else(|_| number.to_owned(), |it| (it - before).to_string());
            one.push_str(&format!("${number}{rest}"));
        }
        one
    };
    said.split(";\n").map(renumbered).collect()
}

struct Listener(Heard);

impl<S: tracing::Subscriber> Layer<S> for Listener {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() == "sqlx::query" {
            let mut said = Said::default();
            event.record(&mut said);
            // A statement of few words is told in the summary alone.
            let statement = if said.statement.is_empty() { said.summary } else { said.statement };
            self.0.lock().expect("statements").push(statement.trim().to_owned());
        }
    }
}

#[derive(Default)]
struct Said {
    statement: String,
    summary: String,
}

impl Visit for Said {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "db.statement" => self.statement = value.into(),
            "summary" => self.summary = value.into(),
            _ => {}
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}
