-- Events.

CREATE TABLE events (
    tenant_id text COLLATE "C" NOT NULL,
    query_id text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    type text NOT NULL,
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    body bytea NOT NULL,  -- the envelope without its seq, encoded once for all readers
    PRIMARY KEY (tenant_id, query_id, seq)
);
CREATE INDEX events_of_tenant ON events (tenant_id, xid, query_id, seq);
