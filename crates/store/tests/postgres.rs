//! The SQL of the store runs on PostgreSQL: its migrations make a database there, what the store wrote fits into it, and
//! every statement that the store used while all its operations ran is understood, with parameters and results of the
//! types that the store gives and reads, and executed.
//!
//! The statements are those that sqlx says it has run, so that nothing is listed twice; the sources are searched for
//! statements that were not among them. `POSTGRES` is all that may differ.
//!
//! Without PostgreSQL this test says so and is skipped; `make postgres` installs it.

mod support;

mod postgres {
    pub(crate) mod operations;
    pub(crate) mod server;
    pub(crate) mod sources;
    pub(crate) mod statements;
}

use postgres::server::Server;
use postgres::{operations, sources, statements};
use sqlx::{Column, Row, SqliteConnection, TypeInfo, ValueRef};
use std::io::Write;
use std::path::Path;
use support::{Dir, intruder};
use workroom_store::{POSTGRES, Store};

#[tokio::test]
async fn every_statement_of_the_store_runs_on_postgresql() {
    let dir = Dir::new();
    let home = Dir::new();
    let Some(server) = Server::start(home.path()) else {
        // Seen although the test passes: what tests print with macros is kept from the screen.
        let why = "PostgreSQL is not installed; `make postgres` does that";
        let _ = writeln!(std::io::stderr(), "skipped: the store's SQL is not tried on PostgreSQL: {why}");
        return;
    };
    let heard = statements::listen();
    let store = Store::open(dir.path()).await.expect("the store opens");
    // What was said until now is how SQLite is opened and brought up to date.
    statements::take(&heard);
    operations::all(&store, &dir).await;
    let used = statements::take(&heard);
    store.close().await;

    let missing = sources::statements_that_are_not_in(&used);
    assert!(missing.is_empty(), "operations::all leaves out these statements of the sources: {missing:#?}");

    let (mut script, mut applied) = (String::new(), String::new());
    for migration in migrations() {
        applied.push_str(&migration);
        script.push_str(&in_postgres_words(&migration));
    }
    script.push_str(&rows_of_the_store(&mut intruder(&dir).await).await);
    script.push_str(TRY_IT);
    for (number, statement) in used.iter().enumerate() {
        assert!(!statement.contains("$do$"));
        let (begin, statement) = (in_postgres_words("BEGIN IMMEDIATE"), in_postgres_words(statement));
        script.push_str(&format!(
            "\\echo statement {number}\n{begin};\nSELECT prepared($do${statement}$do$) AS call \\gset\n\
             :call \\gdesc\nSELECT executed(:'call');\nROLLBACK;\nDEALLOCATE tried;\n"
        ));
    }
    let (tried, found) = judge(&server.psql(&script), &used);
    assert_eq!(tried, used.len());
    // The parameters are filled with what the operations have left behind; lists ask for more than one thing at once.
    assert!(found > 30, "{found} of {tried} statements found something");

    for difference in &POSTGRES {
        let is_needed = applied.contains(difference.sqlite) || difference.sqlite == "BEGIN IMMEDIATE";
        assert!(is_needed, "nothing says {difference:?} any more");
    }
}

fn in_postgres_words(sql: &str) -> String {
    POSTGRES
        .iter()
        .fold(sql.to_owned(), |sql, difference| sql.replace(difference.sqlite, difference.postgres))
}

fn migrations() -> Vec<String> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations/sqlite");
    let mut files: Vec<_> =
        dir.read_dir().expect("migrations").map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files.iter().map(|file| std::fs::read_to_string(file).expect("a migration")).collect()
}

/// Everything in the store, as PostgreSQL is to take it.
async fn rows_of_the_store(connection: &mut SqliteConnection) -> String {
    let tables: Vec<String> = sqlx::query_scalar(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE '\\_%' ESCAPE '\\' \
         AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY rowid",
    )
    .fetch_all(&mut *connection)
    .await
    .expect("tables");
    assert!(tables.len() > 10, "{tables:?}");
    let mut script = String::new();
    for table in tables {
        let rows = sqlx::query(sqlx::AssertSqlSafe(format!("SELECT * FROM {table}")))
            .fetch_all(&mut *connection)
            .await
            .expect("rows");
        assert!(!rows.is_empty(), "no operation has left anything in {table}");
        for row in rows {
            let names: Vec<&str> = row.columns().iter().map(Column::name).collect();
            let values: Vec<String> = (0..names.len())
                .map(|index| {
                    let raw = row.try_get_raw(index).expect("a value");
                    if raw.is_null() {
                        return "NULL".into();
                    }
                    match raw.type_info().name() {
                        "INTEGER" => row.get::<i64, _>(index).to_string(),
                        "TEXT" => format!("'{}'", row.get::<&str, _>(index).replace('\'', "''")),
                        "BLOB" => {
                            let bytes: Vec<u8> = row.get(index);
                            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                            format!("'\\x{hex}'")
                        }
                        other => panic!("{table} holds a value of type {other}"),
                    }
                })
                .collect();
            script.push_str(&format!(
                "INSERT INTO {table} ({}) OVERRIDING SYSTEM VALUE VALUES ({});\n",
                names.join(", "),
                values.join(", ")
            ));
        }
    }
    script
}

/// How many statements were tried, and how many of them found a row. Results have to be of the types that the store reads.
fn judge(printed: &str, used: &[String]) -> (usize, usize) {
    let (mut tried, mut found) = (0, 0);
    for (index, part) in printed.split("statement ").skip(1).enumerate() {
        let mut lines = part.lines();
        assert_eq!(lines.next(), Some(index.to_string().as_str()), "{printed}");
        for line in lines {
            if let Some(rows) = line.strip_prefix("rows: ") {
                tried += 1;
                found += usize::from(rows != "0");
            } else if !line.starts_with("The command has no result") {
                let (_, kind) = line.rsplit_once('|').unwrap_or_else(|| panic!("{line}"));
                assert!(["text", "bigint", "bytea"].contains(&kind), "{line} is not read: {}", used[index]);
            }
        }
    }
    (tried, found)
}

/// `prepared` prepares a statement and says how to execute it, with parameters that are to be of the types that the store gives.
/// `executed` does that. Such values may break a rule of the tables, and that is all that they may.
const TRY_IT: &str = r"
CREATE FUNCTION prepared(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    kinds regtype[];
    kind regtype;
    given text[] := '{}';
BEGIN
    EXECUTE 'PREPARE tried AS ' || statement;
    SELECT parameter_types INTO kinds FROM pg_prepared_statements WHERE name = 'tried';
    FOREACH kind IN ARRAY kinds LOOP
        CASE kind::text
            WHEN 'text' THEN given := given || quote_literal('one');
            WHEN 'bigint' THEN given := given || '1'::text;
            WHEN 'bytea' THEN given := given || quote_literal('one');
            ELSE RAISE 'a parameter is of type %, which the store does not give: %', kind, statement;
        END CASE;
    END LOOP;
    RETURN 'EXECUTE tried' || CASE WHEN given = '{}' THEN '' ELSE '(' || array_to_string(given, ', ') || ')' END;
END
$$;
CREATE FUNCTION executed(call text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    found bigint;
BEGIN
    EXECUTE call;
    GET DIAGNOSTICS found = ROW_COUNT;
    RETURN 'rows: ' || found;
EXCEPTION WHEN integrity_constraint_violation OR cardinality_violation THEN
    RETURN 'rows: 1';
END
$$;
";
