-- What a program may do: the words of its scopes, with a blank between (rule S1). A disabled principal does not resolve.
ALTER TABLE principals ADD COLUMN scopes TEXT NOT NULL DEFAULT '';
ALTER TABLE principals ADD COLUMN disabled_at TEXT;

-- Only the SHA-256 of a token's secret is kept.
CREATE TABLE tokens (
    number     INTEGER PRIMARY KEY AUTOINCREMENT,
    id         TEXT NOT NULL UNIQUE,
    subject    TEXT NOT NULL REFERENCES principals (subject),
    hash       BLOB NOT NULL,
    created_at TEXT NOT NULL,
    revoked_at TEXT
) STRICT;

-- Under which key of whom a run was started. The body is a MAC over what was asked for: it tells nobody what that was.
CREATE TABLE starts (
    starter TEXT NOT NULL,
    key     TEXT NOT NULL,
    body    BLOB NOT NULL,
    run     TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    PRIMARY KEY (starter, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX starts_by_run ON starts (run);
