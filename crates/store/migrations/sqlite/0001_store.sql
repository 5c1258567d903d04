-- Sessions, their labels and journals, tokens, remembered answers.
-- Only TEXT and BIGINT, so that the PostgreSQL twin of this file differs in the identity column alone.

-- `doc` is the whole session as JSON; the other columns are what queries ask for.
-- `gone` is 1 for a deleted session: first in every listing's index, so that dead rows cost a list nothing.
CREATE TABLE sessions (
    id         TEXT   NOT NULL PRIMARY KEY,
    owner      TEXT   NOT NULL,
    key        TEXT,
    place      TEXT,
    state      TEXT   NOT NULL,
    grp        TEXT,
    created    BIGINT NOT NULL,
    gone       BIGINT NOT NULL,
    deleted_at BIGINT,
    waiting    BIGINT NOT NULL,
    doc        TEXT   NOT NULL
);
-- A NULL is equal to nothing: sessions without a key or a place, and deleted ones, never collide.
CREATE UNIQUE INDEX sessions_key ON sessions (owner, key);
CREATE UNIQUE INDEX sessions_place ON sessions (place);
-- Behind the order of the list come the columns that filters ask about: they are then judged inside the index.
CREATE INDEX sessions_newest ON sessions (gone, created, id, state);
CREATE INDEX sessions_of_owner ON sessions (owner, gone, created, id, state, grp);
CREATE INDEX sessions_of_group ON sessions (grp, gone, created, id, state, owner);

-- What a list by label needs of the session is repeated here, for the same reason.
CREATE TABLE labels (
    session TEXT   NOT NULL REFERENCES sessions (id),
    key     TEXT   NOT NULL,
    value   TEXT   NOT NULL,
    owner   TEXT   NOT NULL,
    grp     TEXT,
    state   TEXT   NOT NULL,
    gone    BIGINT NOT NULL,
    created BIGINT NOT NULL,
    PRIMARY KEY (session, key)
);
CREATE INDEX labels_pair ON labels (key, value, gone, created, session, state, owner, grp);
CREATE INDEX labels_key ON labels (key, gone, created, session, state, owner, grp);

-- AUTOINCREMENT: a position is never given out twice, also after a purge of the newest entries.
CREATE TABLE journal (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    session  TEXT   NOT NULL REFERENCES sessions (id),
    seq      BIGINT NOT NULL,
    owner    TEXT   NOT NULL,
    at       BIGINT NOT NULL,
    actor    TEXT   NOT NULL,
    kind     TEXT   NOT NULL,
    body     TEXT   NOT NULL,
    hash     TEXT   NOT NULL,
    UNIQUE (session, seq)
);
CREATE INDEX journal_of_owner ON journal (owner, position);

-- How long each journal is and how it ends, signed: one row for every session from its first moment.
CREATE TABLE heads (
    session   TEXT   NOT NULL PRIMARY KEY REFERENCES sessions (id),
    entries   BIGINT NOT NULL,
    hash      TEXT   NOT NULL,
    signature TEXT   NOT NULL
);

-- The signed hash of every 256th entry: they narrow down what was rewritten.
CREATE TABLE checkpoints (
    session   TEXT   NOT NULL REFERENCES sessions (id),
    seq       BIGINT NOT NULL,
    hash      TEXT   NOT NULL,
    signature TEXT   NOT NULL,
    PRIMARY KEY (session, seq)
);

CREATE TABLE tokens (
    id          TEXT   NOT NULL PRIMARY KEY,
    secret_hash TEXT   NOT NULL,
    created     BIGINT NOT NULL,
    doc         TEXT   NOT NULL
);

-- `status` is NULL while the request is under way. `encoding` says how `body` holds the answer's bytes.
CREATE TABLE idempotency (
    scope        TEXT   NOT NULL,
    key          TEXT   NOT NULL,
    fingerprint  TEXT   NOT NULL,
    resource     TEXT,
    status       BIGINT,
    content_type TEXT,
    encoding     TEXT,
    body         TEXT,
    at           BIGINT NOT NULL,
    PRIMARY KEY (scope, key)
);
CREATE INDEX idempotency_age ON idempotency (at);

-- One row that readiness writes, to know that writing works.
CREATE TABLE pulse (
    id BIGINT NOT NULL PRIMARY KEY,
    at BIGINT NOT NULL
);
