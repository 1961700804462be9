-- Who started a run: a program sees those that it started (rule S1). The row's MAC covers it where it is not the owner,
-- which it was in every run before.
ALTER TABLE runs ADD COLUMN starter TEXT NOT NULL DEFAULT '';
UPDATE runs SET starter = owner;

CREATE INDEX runs_by_starter ON runs (starter, state);
