-- How old a program may be that works on this database: the schema that it must know. A later migration that only
-- adds leaves the number as it is, so that programs of the release before go on beside newer ones (rule R2).
CREATE TABLE schema_version (
    one           INTEGER PRIMARY KEY CHECK (one = 1),
    readable_from INTEGER NOT NULL
) STRICT;

INSERT INTO schema_version (one, readable_from) VALUES (1, 12);

-- What is written to learn whether the database can be written.
CREATE TABLE probe (
    one   INTEGER PRIMARY KEY CHECK (one = 1),
    bytes BLOB NOT NULL
) STRICT;
