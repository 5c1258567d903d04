-- What sessions' files are made of. A session without a row in `stacks` has one layer, of its own name.

CREATE TABLE stacks (
    session TEXT NOT NULL PRIMARY KEY REFERENCES sessions (id),
    -- The first ancestor: what all relatives have in common.
    family  TEXT NOT NULL,
    doc     TEXT NOT NULL
);
CREATE INDEX stacks_family ON stacks (family);

CREATE TABLE snapshots (
    session TEXT   NOT NULL REFERENCES sessions (id),
    name    TEXT   NOT NULL,
    created BIGINT NOT NULL,
    doc     TEXT   NOT NULL,
    PRIMARY KEY (session, name)
);

-- Who needs a layer: a session's own stack (`holder` is empty) or one of its snapshots. What is not here is garbage.
CREATE TABLE layer_uses (
    session TEXT NOT NULL REFERENCES sessions (id),
    holder  TEXT NOT NULL,
    layer   TEXT NOT NULL,
    PRIMARY KEY (session, holder, layer)
);
CREATE INDEX layer_uses_layer ON layer_uses (layer);
