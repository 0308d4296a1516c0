-- Outgoing calls.

-- Every outgoing call: of tools, actions of plans and predicates. The row is the intent: it is committed before anybody can
-- claim the call and before a byte of it is sent. Calls of sender `client` wait for a process of the user; the process that
-- holds the query sends all others, under the epoch of its lease.
CREATE TABLE outgoing_calls (
    tenant_id text COLLATE "C" NOT NULL REFERENCES tenants,
    work_id text COLLATE "C" NOT NULL,
    query_id text COLLATE "C" NOT NULL,
    purpose text NOT NULL CHECK (purpose IN ('tool', 'action', 'predicate')),
    sender text NOT NULL CHECK (sender IN ('client', 'service')),
    name text NOT NULL,
    definition_digest text NOT NULL,
    request bytea NOT NULL,
    replay text NOT NULL CHECK (replay IN ('safe', 'never')),
    status text NOT NULL CHECK (status IN ('open', 'claimed', 'done', 'unknown', 'withdrawn')),
    claim_token_hash bytea,
    claimed_by text,
    claimed_until timestamptz,
    claim_before timestamptz,
    claim_within_ms float8,                 -- how long each offer stands
    epoch bigint,                           -- under which the service sends it
    run_before timestamptz,
    timeout_ms bigint NOT NULL,
    attempts int NOT NULL DEFAULT 0,
    result bytea,                           -- {"output"} or {"error"}; of a call with an unknown outcome, what is known, as {"error"}
    late_result bytea,                      -- kept as evidence only
    created_at timestamptz NOT NULL DEFAULT now(),
    done_at timestamptz,
    PRIMARY KEY (tenant_id, work_id),
    FOREIGN KEY (tenant_id, query_id) REFERENCES queries,
    CHECK ((sender = 'client') = (claim_before IS NOT NULL))
);
CREATE INDEX outgoing_calls_open ON outgoing_calls (tenant_id, name, created_at) WHERE status = 'open' AND sender = 'client';
CREATE INDEX outgoing_calls_claimed ON outgoing_calls (tenant_id, claim_token_hash) WHERE status = 'claimed';
CREATE INDEX outgoing_calls_of_query ON outgoing_calls (tenant_id, query_id, work_id);
CREATE INDEX outgoing_calls_due ON outgoing_calls (claimed_until) WHERE status = 'claimed';
CREATE INDEX outgoing_calls_unclaimed ON outgoing_calls (claim_before) WHERE status = 'open';
