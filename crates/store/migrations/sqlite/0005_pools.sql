-- The pool that a session is a slot of, beside its document: no two databases ask a document in the same words.

ALTER TABLE sessions ADD COLUMN pool TEXT;
UPDATE sessions SET pool = json_extract(doc, '$.pool');
