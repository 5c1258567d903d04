-- Secrets, sealed by the engine: the store cannot read them. One that was removed keeps its row, without a value, so
-- that its versions go on counting and an old record fits nowhere any more.

CREATE TABLE secrets (
    -- global, user, session
    scope   TEXT    NOT NULL,
    -- The user's name or the session's id; empty for global ones.
    holder  TEXT    NOT NULL,
    name    TEXT    NOT NULL,
    version INTEGER NOT NULL,
    -- Milliseconds.
    created INTEGER NOT NULL,
    -- The id of the master key that it is sealed under.
    key_id  TEXT    NOT NULL,
    sealed  BLOB,
    PRIMARY KEY (scope, holder, name)
);
