//! A store that an earlier version made opens with this one, and loses nothing.

mod support;

use sqlx::Row;
use support::{Dir, insert, intruder, open, session};
use workroom_store::{Change, InPool, SessionFilter};
use workroom_types::Timestamp;

/// What every store says of the migrations that made it. One that reads otherwise now would keep it from opening.
const APPLIED: [(i64, &str); 6] = [
    (1, "345eaa27e1afa38af6af806ce1b7a84ea4d6c5c250734ca873a9b8c584808812281b17b9c8c5e24e9c57a62cdf975c3e"),
    (2, "64ba79252f115ccf9811cc065a141c09c476b7ca6310dfa288c4ac7e3384398add590f8769a0c4a8fd93a551bb0c08ca"),
    (3, "2ae6ee68ca54d434f6f35a6055676d3dda78b838240f0f5ece7a493d2bfd7d06d055110ba9fb4fb17b2adf38496739c0"),
    (4, "227f2b41751f99075543572793e900447a629bd1b94244538fa9cf68ecf5157c30937302ca294c0b1a08f9a10e919243"),
    (5, "0a330b77da20e2df1d1b176fc7b413775231cf685a6cf780cfbffe9b7e943b1991a4efb6da4cbc21b7bb56c0dfe5e39a"),
    (6, "12f15ca02dc3e6799645a94864c36bb99542953b2a193e05470efaabf86347133a0679e13726ce3d15fdde98855e692b"),
];

#[tokio::test]
async fn what_was_applied_once_reads_the_same_for_ever() {
    let dir = Dir::new();
    open(&dir).await.close().await;
    let rows = sqlx::query("SELECT version, lower(hex(checksum)) FROM _sqlx_migrations ORDER BY version")
        .fetch_all(&mut intruder(&dir).await)
        .await
        .expect("migrations");
    let applied: Vec<(i64, String)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let known = APPLIED.map(|(version, checksum)| (version, checksum.to_owned()));
    assert_eq!(applied, known, "a migration is never edited, only added");
}

#[tokio::test]
async fn slots_from_before_pools_had_a_column_are_still_told_from_other_sessions() {
    let dir = Dir::new();
    let store = open(&dir).await;
    let mut slot = session("slot");
    slot.session.pool = Some("workers".into());
    let made = vec![insert(slot.clone()), insert(session("plain"))];
    store.commit(made).await.expect("a commit");
    store.close().await;
    for statement in
        ["ALTER TABLE sessions DROP COLUMN pool", "DELETE FROM _sqlx_migrations WHERE version = 5"]
    {
        sqlx::query(statement).execute(&mut intruder(&dir).await).await.expect("a store as it was before");
    }

    let store = open(&dir).await;
    let found = async |pool: InPool| {
        let filter = SessionFilter { pool, limit: 10, ..Default::default() };
        let rows = store.sessions(&filter).await.expect("a list");
        rows.into_iter().map(|row| row.session.id).collect::<Vec<_>>()
    };
    assert_eq!(found(InPool::None).await, ["plain"]);
    assert_eq!(found(InPool::Any).await, ["slot"]);
    assert_eq!(found(InPool::Named("workers".into())).await, ["slot"]);
    assert_eq!(found(InPool::Named("others".into())).await, Vec::<String>::new());
    assert_eq!(store.created_since("ada", Timestamp(0)).await.expect("a count"), 1);

    // A slot that becomes somebody's own session, and saves that.
    slot.session.pool = None;
    store.commit(vec![Change::SaveSession { row: slot }]).await.expect("a commit");
    assert_eq!(found(InPool::Any).await, Vec::<String>::new());
}
