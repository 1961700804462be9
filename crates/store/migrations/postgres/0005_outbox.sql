-- Who is still to be told of what: a row a webhook and event, written with the event. It points to the event and holds
-- nothing of it. A row goes when somebody was told, or with its run.
CREATE TABLE outbox (
    webhook  TEXT COLLATE "C" NOT NULL,
    run      TEXT COLLATE "C" NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    seq      BIGINT NOT NULL,
    attempts BIGINT NOT NULL DEFAULT 0,
    due      TEXT COLLATE "C", -- when it may be taken in hand; whoever takes it moves this to the end of their time. Absent: given up
    token    TEXT COLLATE "C", -- whose hand it is in
    PRIMARY KEY (run, seq, webhook)
);

CREATE INDEX outbox_by_webhook ON outbox (webhook, due);

-- Who answered that they want to be told nothing any more.
CREATE TABLE webhooks_gone (
    webhook TEXT COLLATE "C" PRIMARY KEY,
    at      TEXT COLLATE "C" NOT NULL
);
