-- When a tool or a group was last switched off, whatever became of its switch since: an approval that was given
-- before is not revived by switching it on again (rule A12).
CREATE TABLE switched_off (
    kind TEXT NOT NULL CHECK (kind IN ('tool', 'group')),
    name TEXT NOT NULL,
    at   TEXT NOT NULL,
    PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;
