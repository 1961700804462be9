-- How old a program may be that works on this database: the schema that it must know. A later migration that only
-- adds leaves the number as it is, so that programs of the release before go on beside newer ones (rule R2).
ALTER TABLE schema_version ADD COLUMN readable_from BIGINT NOT NULL DEFAULT 10;

-- What is written to learn whether the database can be written.
CREATE TABLE probe (
    one BIGINT PRIMARY KEY CHECK (one = 1),
    at  TIMESTAMPTZ NOT NULL
);
