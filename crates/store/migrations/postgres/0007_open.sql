-- What is open is counted by kind, and its oldest found, without reading a row of it.
CREATE INDEX pendings_open ON pendings (kind, created_at) WHERE status = 'open';
