//! What PostgreSQL says in other words. Everything that is not here, every migration and every statement, it takes as it is;
//! `tests/postgres.rs` holds us to that.

/// Words of SQLite, the same for PostgreSQL, and why they differ.
#[derive(Debug)]
pub struct Difference {
    pub sqlite: &'static str,
    pub postgres: &'static str,
    pub reason: &'static str,
}

/// How a transaction that will write begins.
pub(crate) const BEGIN: &str = "BEGIN IMMEDIATE";

/// The whole list. The first that fits counts.
pub const POSTGRES: [Difference; 5] = [
    Difference {
        sqlite: BEGIN,
        postgres: "BEGIN",
        reason: "SQLite takes its one write lock at once: who begins by reading and then finds another writer fails; \
                 PostgreSQL locks rows, and there is one scribe",
    },
    Difference {
        sqlite: "INTEGER PRIMARY KEY AUTOINCREMENT",
        postgres: "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
        reason: "numbers that are never given out twice have no common words",
    },
    Difference {
        sqlite: "INTEGER NOT NULL",
        postgres: "BIGINT NOT NULL",
        reason: "SQLite's INTEGER has 64 bits, PostgreSQL's has 32, and milliseconds need more",
    },
    Difference { sqlite: "BLOB", postgres: "BYTEA", reason: "the type of bytes has another name" },
    Difference {
        sqlite: "json_extract(doc, '$.pool')",
        postgres: "doc::json ->> 'pool'",
        reason: "a document is asked once, in the migration that gives pools a column",
    },
];
