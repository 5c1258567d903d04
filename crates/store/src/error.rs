//! What can go wrong with the store, in words for people and kinds for programs.

use std::path::Path;

/// What the caller can make of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreErrorKind {
    /// No space is left; nothing was changed, and it works again once there is.
    Full,
    /// The disk or the file system failed; nothing was changed.
    Io,
    /// What is stored is not what was written.
    Corrupt,
    Other,
}

/// One sentence of what happened, one of what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}; {hint}")]
pub struct StoreError {
    kind: StoreErrorKind,
    what: String,
    hint: &'static str,
    /// It is the change that cannot be applied, not the store that cannot write.
    unfit: bool,
}

const HINT_FULL: &str = "free some space on the disk of the state directory, with `workroom files rm` or `workroom rm` while a \
                         server runs: it goes on by itself";
const HINT_IO: &str = "look for disk errors in the kernel's log; a server that runs tries again by itself";
const HINT_CORRUPT: &str = "run `workroom journal verify`, and restore the state directory from a backup";
const HINT_OTHER: &str = "try again; if it stays, report it with the server's log";

impl StoreError {
    pub(crate) fn new(kind: StoreErrorKind, what: impl Into<String>) -> StoreError {
        let hint = match kind {
            StoreErrorKind::Full => HINT_FULL,
            StoreErrorKind::Io => HINT_IO,
            StoreErrorKind::Corrupt => HINT_CORRUPT,
            StoreErrorKind::Other => HINT_OTHER,
        };
        StoreError { kind, what: what.into(), hint, unfit: false }
    }

    /// A change that could never be applied, whatever the state of the disk.
    pub(crate) fn unfit(what: impl Into<String>, hint: &'static str) -> StoreError {
        StoreError { kind: StoreErrorKind::Other, what: what.into(), hint, unfit: true }
    }

    pub(crate) fn closed() -> StoreError {
        StoreError {
            hint: "start the server again",
            ..Self::new(StoreErrorKind::Other, "the store is closed")
        }
    }

    pub(crate) fn file(doing: &str, path: &Path, error: &std::io::Error) -> StoreError {
        Self::new(kind_of_io(error), format!("cannot {doing} {}: {error}", path.display()))
    }

    pub(crate) fn with_hint(self, hint: &'static str) -> StoreError {
        StoreError { hint, ..self }
    }

    /// A failing file system that turns out to have no space: SQLite names some of these I/O errors.
    pub(crate) fn into_full(self) -> StoreError {
        StoreError { kind: StoreErrorKind::Full, hint: HINT_FULL, ..self }
    }

    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    pub fn is_full(&self) -> bool {
        self.kind == StoreErrorKind::Full
    }

    pub fn is_io(&self) -> bool {
        self.kind == StoreErrorKind::Io
    }

    pub fn is_corrupt(&self) -> bool {
        self.kind == StoreErrorKind::Corrupt
    }

    pub(crate) fn is_unfit(&self) -> bool {
        self.unfit
    }
}

fn kind_of_io(error: &std::io::Error) -> StoreErrorKind {
    match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => StoreErrorKind::Full,
        _ => StoreErrorKind::Io,
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> StoreError {
        use sqlx::error::ErrorKind;
        match &error {
            sqlx::Error::Database(database) => {
                let words = format!("the database says: {}", database.message());
                if !matches!(database.kind(), ErrorKind::Other) {
                    return StoreError::unfit(
                        words,
                        "change what is asked for: it contradicts what is stored",
                    );
                }
                // SQLite's primary result code is the low byte of the extended one.
                let code = database.code().and_then(|code| code.parse::<i32>().ok()).unwrap_or_default();
                let kind = match code & 0xff {
                    13 => StoreErrorKind::Full,
                    // IOERR, READONLY, CANTOPEN
                    10 | 8 | 14 => StoreErrorKind::Io,
                    // CORRUPT, NOTADB
                    11 | 26 => StoreErrorKind::Corrupt,
                    // TOOBIG
                    18 => return StoreError::unfit(words, "send less at once"),
                    _ => StoreErrorKind::Other,
                };
                StoreError::new(kind, format!("{words} (code {code})"))
            }
            sqlx::Error::Io(cause) => StoreError::new(kind_of_io(cause), format!("the disk failed: {cause}")),
            sqlx::Error::PoolClosed => StoreError::closed(),
            sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => {
                StoreError::new(StoreErrorKind::Corrupt, format!("a stored row cannot be read: {error}"))
            }
            other => StoreError::new(StoreErrorKind::Other, format!("the database failed: {other}")),
        }
    }
}

impl From<sqlx::migrate::MigrateError> for StoreError {
    fn from(error: sqlx::migrate::MigrateError) -> StoreError {
        match error {
            sqlx::migrate::MigrateError::Execute(error) => error.into(),
            sqlx::migrate::MigrateError::ExecuteMigration(error, _) => error.into(),
            other => StoreError::new(
                StoreErrorKind::Other,
                format!("the store cannot be brought up to date: {other}"),
            )
            .with_hint("use the version of Workroom that wrote this state directory, or a newer one"),
        }
    }
}
