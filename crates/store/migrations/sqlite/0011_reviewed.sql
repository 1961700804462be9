-- Up to where every open question was looked at, and what the tools were then: a start looks only at what came after, as
-- long as the tools are the same. A hint like any other: what is missing or wrong here costs time, or shows a question as
-- open that nobody can approve any more.
CREATE TABLE reviewed (
    one         INTEGER PRIMARY KEY CHECK (one = 1),
    definitions TEXT NOT NULL, -- a digest over the names and definitions of all tools
    cursor      TEXT -- of the list of open questions; absent: its beginning
) STRICT;
