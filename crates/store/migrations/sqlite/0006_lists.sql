-- A list shows rows of one owner or agent in the order of their numbers, and mostly of one word: the open ones among
-- very many that are settled, the failed ones among very many that wait. Only an index over both has these in order.
DROP INDEX runs_by_agent;
DROP INDEX runs_by_owner;
CREATE INDEX runs_by_agent ON runs (agent, state);
CREATE INDEX runs_by_owner ON runs (owner, state);

DROP INDEX pendings_by_agent;
DROP INDEX pendings_by_owner;
CREATE INDEX pendings_by_agent ON pendings (agent, status);
CREATE INDEX pendings_by_owner ON pendings (owner, status);
