-- A change of master keys (rule S3). There is a row from the moment it begins until the old key is retired.
-- Each of the two keys is sealed under the other, so that either of them is enough to go on with.
CREATE TABLE rotation (
    one              INTEGER PRIMARY KEY CHECK (one = 1),
    from_fingerprint TEXT NOT NULL,
    to_fingerprint   TEXT NOT NULL,
    to_key           BLOB NOT NULL, -- the new master key, sealed under the old one
    from_key         BLOB NOT NULL, -- the old master key, sealed under the new one
    in_use_until     TEXT           -- when the last of the leases ends that were held at the switch
) STRICT;

-- Erasure (rule R10). Of an erased run runs.key and events.sealed are empty, and events.digest is the SHA-256
-- of what was sealed, over which the chain goes. The row's MAC covers erased_at where it is set.
ALTER TABLE runs ADD COLUMN erased_at TEXT;
ALTER TABLE events ADD COLUMN digest BLOB;

-- Retention looks for what ended longest ago.
CREATE INDEX runs_finished ON runs (finished_at) WHERE finished_at IS NOT NULL;
