-- Which records of deleted sessions are old enough to go, without looking at the others.

CREATE INDEX sessions_deleted ON sessions (deleted_at, id) WHERE deleted_at IS NOT NULL;
