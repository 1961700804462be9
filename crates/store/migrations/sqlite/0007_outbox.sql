-- Who is still to be told of what: a row a webhook and event, written with the event. It points to the event and holds
-- nothing of it. A row goes when somebody was told, or with its run.
CREATE TABLE outbox (
    webhook  TEXT NOT NULL,
    run      TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    seq      INTEGER NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    due      TEXT, -- when it may be taken in hand; whoever takes it moves this to the end of their time. Absent: given up
    token    TEXT, -- whose hand it is in
    PRIMARY KEY (run, seq, webhook)
) STRICT, WITHOUT ROWID;

CREATE INDEX outbox_by_webhook ON outbox (webhook, due);

-- Who answered that they want to be told nothing any more.
CREATE TABLE webhooks_gone (
    webhook TEXT PRIMARY KEY NOT NULL,
    at      TEXT NOT NULL
) STRICT, WITHOUT ROWID;
