-- What else belongs to a session: entries of its process table, its services, its published ports. Each is a document
-- that the engine alone reads.

CREATE TABLE parts (
    session TEXT NOT NULL REFERENCES sessions (id),
    kind    TEXT NOT NULL,
    id      TEXT NOT NULL,
    doc     TEXT NOT NULL,
    PRIMARY KEY (session, kind, id)
);
