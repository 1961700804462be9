-- Who started a run: a program sees those that it started (rule S1). The row's MAC covers it where it is not the owner,
-- which it was in every run before.
ALTER TABLE runs ADD COLUMN starter TEXT COLLATE "C";
UPDATE runs SET starter = owner;
ALTER TABLE runs ALTER COLUMN starter SET NOT NULL;

CREATE INDEX runs_by_starter ON runs (starter, state, number);
