-- The run whose conversation a run goes on with (rule R10). The row's MAC covers it where it is set.
ALTER TABLE runs ADD COLUMN continues TEXT COLLATE "C" REFERENCES runs (id);

-- Retention and erasure look for what goes on with a run.
CREATE INDEX runs_continuing ON runs (continues) WHERE continues IS NOT NULL;
