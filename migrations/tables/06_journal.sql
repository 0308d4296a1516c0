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

-- The arguments of journal_commit. Events and work records name their entry by its index, from 1.
CREATE TYPE journal_entry AS (
    tenant_id text,
    query_id text,
    epoch bigint,
    number bigint,    -- of the entry, in its epoch
    progress boolean,
    status text,      -- the end of a process's work on the query; NULL while it continues
    reason text,
    wake bigint,      -- for parking: the wake counter that the process has seen
    output bytea,
    error bytea
);
CREATE TYPE journal_event AS (entry int, type text, body bytea);
CREATE TYPE journal_work AS (
    entry int,
    id text,
    parent_id text,
    kind text,
    name text,
    agent text,
    status text,
    position int,
    tool_invocation_id text,
    provider text,
    model text,
    prompt_cache_key text,
    input_tokens bigint,
    output_tokens bigint,
    cache_read_tokens bigint,
    cache_write_tokens bigint,
    reasoning_tokens bigint,
    cost_usd float8,
    price_date text,
    prompt_bytes bigint,
    prompt_tokens bigint,
    prompt_usd float8,
    attempts int,
    input bytea,
    output bytea,
    error bytea
);
