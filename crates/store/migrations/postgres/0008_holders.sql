-- Which process holds a lease (rule R6), so that the runs of one that is gone are free soon. Not known: the lease runs out.
ALTER TABLE runs ADD COLUMN lease_holder INTEGER;

CREATE INDEX runs_by_holder ON runs (lease_holder) WHERE lease_holder IS NOT NULL;
