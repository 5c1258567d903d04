//! The question behind every list of sessions, put so that an index answers it: newest first, page by page.

use crate::rows::{InPool, SessionFilter};
use workroom_types::SessionState;

#[derive(Debug, Clone)]
pub(crate) enum Value {
    Text(String),
    Number(i64),
}

/// SQL with numbered placeholders, and what goes into them. Only the words of this file are in the text.
#[derive(Debug, Default)]
pub(crate) struct Question {
    pub(crate) sql: String,
    pub(crate) values: Vec<Value>,
}

impl Question {
    fn hole(&mut self, value: Value) -> String {
        self.values.push(value);
        format!("${}", self.values.len())
    }

    fn and_text(&mut self, column: &str, value: &str) {
        let hole = self.hole(Value::Text(value.into()));
        self.sql.push_str(&format!(" AND {column} = {hole}"));
    }
}

/// The questions whose answers, merged by age, are the list: one about sessions that are there, one about
/// deleted ones, as far as the filter wants each. Two, because an index has the deleted ones apart.
pub(crate) fn questions(filter: &SessionFilter) -> Vec<Question> {
    let (deleted, present): (Vec<SessionState>, Vec<SessionState>) =
        filter.states.iter().partition(|state| **state == SessionState::Deleted);
    let mut questions = Vec::new();
    if filter.states.is_empty() || !present.is_empty() {
        questions.push(question(filter, &present, 0));
    }
    if !deleted.is_empty() {
        questions.push(question(filter, &[], 1));
    }
    questions
}

fn question(filter: &SessionFilter, states: &[SessionState], gone: i64) -> Question {
    let mut question = Question::default();
    // `t` is the table whose index gives the order: with a label, the labels' own, which repeats the columns
    // that are asked for. CROSS JOIN keeps SQLite from turning the two around.
    let (id, pool) = match &filter.label {
        None => {
            question
                .sql
                .push_str("SELECT t.doc, t.place, t.waiting, t.id, t.deleted_at FROM sessions t WHERE 1 = 1");
            ("t.id", "t.pool")
        }
        Some((key, value)) => {
            question.sql.push_str(
                "SELECT s.doc, s.place, s.waiting, s.id, s.deleted_at \
                 FROM labels t CROSS JOIN sessions s WHERE s.id = t.session",
            );
            question.and_text("t.key", key);
            if let Some(value) = value {
                question.and_text("t.value", value);
            }
            ("t.session", "s.pool")
        }
    };
    let hole = question.hole(Value::Number(gone));
    question.sql.push_str(&format!(" AND t.gone = {hole}"));
    if let Some(only) = &filter.only {
        question.and_text(id, only);
    }
    if let Some(owner) = &filter.owner {
        question.and_text("t.owner", owner);
    }
    if let Some(group) = &filter.group {
        question.and_text("t.grp", group);
    }
    match &filter.pool {
        InPool::AnyOrNone => {}
        InPool::None => question.sql.push_str(&format!(" AND {pool} IS NULL")),
        InPool::Any => question.sql.push_str(&format!(" AND {pool} IS NOT NULL")),
        InPool::Named(name) => question.and_text(pool, name),
    }
    if !states.is_empty() {
        let holes: Vec<String> =
            states.iter().map(|state| question.hole(Value::Text(state.as_str().into()))).collect();
        question.sql.push_str(&format!(" AND t.state IN ({})", holes.join(", ")));
    }
    if let Some((created, before)) = &filter.before {
        let created = question.hole(Value::Number(*created));
        let before = question.hole(Value::Text(before.clone()));
        question.sql.push_str(&format!(" AND (t.created, {id}) < ({created}, {before})"));
    }
    let limit = question.hole(Value::Number(i64::from(filter.limit)));
    question.sql.push_str(&format!(" ORDER BY t.created DESC, {id} DESC LIMIT {limit}"));
    question
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::{Change, SessionRow};
    use crate::store::Store;
    use sqlx::{AssertSqlSafe, Row};
    use std::collections::BTreeSet;
    use workroom_types::{Counters, Enforced, OnExpiry, Policy, Session, Timestamp};

    fn row(number: i64) -> SessionRow {
        let state = SessionState::ALL[(number % 8) as usize];
        let session = Session {
            id: format!("s{number:05}"),
            name: String::new(),
            labels: [("env".into(), format!("e{}", number % 3))].into(),
            owner: format!("owner{}", number % 7),
            key: (number % 2 == 0).then(|| format!("k{number}")),
            group: (number % 5 != 0).then(|| format!("g{}", number % 11)),
            channel: None,
            thread: None,
            template: "host".into(),
            policy: Policy::default(),
            policy_version: 1,
            policy_changed: None,
            room_policy: None,
            mounts: Vec::new(),
            room_binds: None,
            state,
            reason: None,
            // Several in one millisecond: the id decides between them.
            created: Timestamp(1_767_000_000_000 + number / 4),
            last_active: Timestamp(0),
            ttl: None,
            idle_timeout: None,
            on_expiry: OnExpiry::Stop,
            keep_alive: false,
            enforced: Enforced::default(),
            counters: Counters::default(),
            reset_count: 0,
            parent: None,
            pool: (number % 13 == 0).then(|| "p".to_owned()),
        };
        SessionRow { session, place: None, waiting: false }
    }

    fn filters() -> Vec<SessionFilter> {
        let mut filters = Vec::new();
        for bits in 0..128u32 {
            let has = |bit: u32| bits & (1 << bit) != 0;
            let label = match (has(0), has(1)) {
                (false, true) => continue,
                (false, false) => None,
                (true, value) => Some(("env".to_owned(), value.then(|| "e1".to_owned()))),
            };
            filters.push(SessionFilter {
                label,
                owner: has(2).then(|| "owner3".into()),
                group: has(3).then(|| "g4".into()),
                states: if has(4) {
                    vec![SessionState::Running, SessionState::Failed, SessionState::Deleted]
                } else {
                    Vec::new()
                },
                only: has(5).then(|| "s00017".into()),
                before: has(6).then(|| (1_767_000_001_000, "s05000".into())),
                pool: [InPool::AnyOrNone, InPool::None, InPool::Any, InPool::Named("p".into())]
                    [(bits.count_ones() % 4) as usize]
                    .clone(),
                limit: 100,
            });
        }
        filters
    }

    fn wanted(row: &SessionRow, filter: &SessionFilter) -> bool {
        let session = &row.session;
        filter.owner.as_ref().is_none_or(|owner| *owner == session.owner)
            && filter.group.as_ref().is_none_or(|group| Some(group) == session.group.as_ref())
            && match filter.states.is_empty() {
                true => session.state != SessionState::Deleted,
                false => filter.states.contains(&session.state),
            }
            && filter.label.as_ref().is_none_or(|(key, value)| {
                session.labels.get(key).is_some_and(|has| value.as_ref().is_none_or(|value| value == has))
            })
            && match &filter.pool {
                InPool::AnyOrNone => true,
                InPool::None => session.pool.is_none(),
                InPool::Any => session.pool.is_some(),
                InPool::Named(name) => session.pool.as_ref() == Some(name),
            }
            && filter.only.as_ref().is_none_or(|only| *only == session.id)
            && filter.before.as_ref().is_none_or(|(created, id)| {
                (session.created.0, session.id.as_str()) < (*created, id.as_str())
            })
    }

    #[tokio::test]
    async fn with_ten_thousand_sessions_every_list_is_right_and_comes_from_an_index() {
        let dir = std::env::temp_dir().join(format!("workroom-store-list-{}", std::process::id()));
        let store = Store::open(&dir).await.unwrap();
        let mut rows: Vec<SessionRow> = (0..10_000).map(row).collect();
        for chunk in rows.chunks(1000) {
            let changes = chunk.iter().map(|row| Change::InsertSession { row: row.clone() }).collect();
            store.commit(changes).await.unwrap();
        }
        let at = Timestamp(7);
        let mut deletes = Vec::new();
        for row in rows.iter_mut().step_by(3) {
            deletes.push(Change::DeleteSession { id: row.session.id.clone(), at });
            row.session.state = SessionState::Deleted;
            row.session.key = None;
            row.session.last_active = at;
        }
        store.commit(deletes).await.unwrap();
        rows.sort_by(|a, b| (b.session.created, &b.session.id).cmp(&(a.session.created, &a.session.id)));

        let mut plans = BTreeSet::new();
        for filter in filters() {
            let expected: Vec<&SessionRow> =
                rows.iter().filter(|row| wanted(row, &filter)).take(100).collect();
            let found = store.sessions(&filter).await.unwrap();
            assert_eq!(found.iter().collect::<Vec<_>>(), expected, "{filter:?}");
            for question in questions(&filter) {
                let mut query = sqlx::query(AssertSqlSafe(format!("EXPLAIN QUERY PLAN {}", question.sql)));
                for value in question.values {
                    query = match value {
                        Value::Text(text) => query.bind(text),
                        Value::Number(number) => query.bind(number),
                    };
                }
                for step in query.fetch_all(&store.readers).await.unwrap() {
                    let words: String = step.try_get("detail").unwrap();
                    assert!(words.starts_with("SEARCH"), "{words}: {}", question.sql);
                    plans.insert(words);
                }
            }
        }
        println!("{plans:#?}");

        // All pages of a list together are the list.
        let mut filter = SessionFilter { owner: Some("owner1".into()), limit: 37, ..Default::default() };
        let mut paged = Vec::new();
        loop {
            let page = store.sessions(&filter).await.unwrap();
            let Some(last) = page.last() else { break };
            filter.before = Some((last.session.created.0, last.session.id.clone()));
            paged.extend(page);
        }
        let expected: Vec<SessionRow> = rows
            .iter()
            .filter(|row| wanted(row, &SessionFilter { owner: Some("owner1".into()), ..Default::default() }))
            .cloned()
            .collect();
        assert_eq!(paged, expected);
        store.close().await;
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
