-- Sealed: events.sealed, runs.key, installation.root. Everything else stands in clear (rule S3).
-- Times are RFC 3339 in UTC with nine digits after the point, so that they sort as text.

-- Which master key fits, and the root of the chain keys, sealed under it.
CREATE TABLE installation (
    one             INTEGER PRIMARY KEY CHECK (one = 1),
    key_fingerprint TEXT NOT NULL,
    root            BLOB NOT NULL
) STRICT;

CREATE TABLE runs (
    number              INTEGER PRIMARY KEY AUTOINCREMENT, -- order of creation, never given twice: lists page by it
    id                  TEXT NOT NULL UNIQUE,
    state               TEXT NOT NULL,
    agent               TEXT NOT NULL,
    owner               TEXT NOT NULL,
    unattended          INTEGER NOT NULL,
    iterations          INTEGER NOT NULL,
    input_tokens        INTEGER NOT NULL,
    output_tokens       INTEGER NOT NULL,
    cached_input_tokens INTEGER NOT NULL,
    unknown_calls       INTEGER NOT NULL,
    limit_reached       TEXT,
    failure             TEXT,
    created_at          TEXT NOT NULL,
    updated_at          TEXT NOT NULL,
    finished_at         TEXT,
    revision            INTEGER NOT NULL, -- how many entries the log has
    head                BLOB NOT NULL,    -- the MAC of the last entry
    mac                 BLOB NOT NULL,    -- over everything above except number
    key                 BLOB NOT NULL,    -- the run's data key, sealed under the master key
    ticket              INTEGER NOT NULL, -- place in the queue: a new one when work becomes owed, and with every claim
    lease_token         TEXT,
    lease_until         TEXT
) STRICT;

CREATE INDEX runs_by_state ON runs (state);
CREATE INDEX runs_by_agent ON runs (agent);
CREATE INDEX runs_by_owner ON runs (owner);
CREATE INDEX runs_queue ON runs (agent, ticket) WHERE state = 'active';
CREATE INDEX runs_by_ticket ON runs (ticket);

CREATE TABLE events (
    run    TEXT NOT NULL REFERENCES runs (id),
    seq    INTEGER NOT NULL,
    at     TEXT NOT NULL,
    kind   TEXT NOT NULL,
    sealed BLOB NOT NULL,
    mac    BLOB NOT NULL, -- over the MAC before it and this entry
    PRIMARY KEY (run, seq)
) STRICT;

CREATE TABLE pendings (
    number     INTEGER PRIMARY KEY AUTOINCREMENT,
    id         TEXT NOT NULL UNIQUE,
    run        TEXT NOT NULL REFERENCES runs (id),
    kind       TEXT NOT NULL,
    status     TEXT NOT NULL,
    agent      TEXT NOT NULL,
    owner      TEXT NOT NULL,
    created_at TEXT NOT NULL,
    expires_at TEXT, -- absent: never. What is no time is kept and counts as passed
    decided_by TEXT,
    refusals   INTEGER NOT NULL DEFAULT 0,
    -- What the sweep looks for: the deadline, or the beginning of time where it cannot be read.
    due        TEXT GENERATED ALWAYS AS (
        CASE
            WHEN expires_at IS NULL THEN NULL
            WHEN expires_at GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]T[0-9][0-9]:[0-9][0-9]:[0-9][0-9].[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]Z'
                 AND substr(expires_at, 1, 19) = strftime('%Y-%m-%dT%H:%M:%S', expires_at) THEN expires_at
            ELSE ''
        END
    ) VIRTUAL
) STRICT;

CREATE INDEX pendings_by_status ON pendings (status);
CREATE INDEX pendings_by_agent ON pendings (agent);
CREATE INDEX pendings_by_owner ON pendings (owner);
CREATE INDEX pendings_by_run ON pendings (run);
CREATE INDEX pendings_due ON pendings (due) WHERE status = 'open' AND due IS NOT NULL;

-- Only overrides: a missing row means the default (rules G2, G3).
CREATE TABLE tool_switches (
    name    TEXT PRIMARY KEY NOT NULL,
    enabled INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE group_switches (
    name    TEXT PRIMARY KEY NOT NULL,
    enabled INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE principals (
    subject  TEXT PRIMARY KEY NOT NULL,
    admin    INTEGER NOT NULL,
    standing TEXT NOT NULL
) STRICT, WITHOUT ROWID;
