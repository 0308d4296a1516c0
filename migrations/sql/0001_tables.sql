-- Every tenant table begins its keys with tenant_id and has forced row-level security (see 0001_roles.sql).
-- What is hashed, approved or handed back as it came is bytea: jsonb reorders keys and rewrites numbers.

-- What says that a process has the master key with which this database was sealed.
CREATE TABLE installation (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    marker bytea NOT NULL
);

CREATE TABLE tenants (
    tenant_id text COLLATE "C" PRIMARY KEY CHECK (tenant_id ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
    created_at timestamptz NOT NULL DEFAULT now(),
    -- {"runningQueries", "queuedQueries", "requestsPerSecond", "bytes"}; an absent one has no limit
    limits jsonb NOT NULL DEFAULT '{}',
    -- {"plans"?: rule, "tools"?: rule}: can only tighten what a spec says
    approval_floor jsonb NOT NULL DEFAULT '{}',
    -- sealed; keys the ids of this tenant's references
    reference_secret bytea NOT NULL
);

CREATE TABLE api_keys (
    tenant_id text COLLATE "C" NOT NULL,  -- '*' for the operator's keys
    id text COLLATE "C" NOT NULL,
    hash bytea NOT NULL UNIQUE CHECK (length(hash) = 32),
    principal text NOT NULL,
    scopes text[] NOT NULL,
    tools text[],  -- the only names this key may serve; NULL is any
    created_at timestamptz NOT NULL DEFAULT now(),
    created_by text NOT NULL,
    expires_at timestamptz,
    revoked_at timestamptz,
    PRIMARY KEY (tenant_id, id)
);

CREATE TABLE secrets (
    tenant_id text COLLATE "C" NOT NULL REFERENCES tenants,
    name text NOT NULL,
    sealed bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, name)
);

-- With what the calls of a line of runtimes are signed; the previous secret signs too for a while.
CREATE TABLE signing_secrets (
    tenant_id text COLLATE "C" NOT NULL REFERENCES tenants,
    runtime_name text NOT NULL,
    sealed bytea NOT NULL,
    previous bytea,
    previous_until timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, runtime_name)
);

CREATE TABLE idempotency (
    tenant_id text COLLATE "C" NOT NULL REFERENCES tenants,
    principal text NOT NULL,
    method text NOT NULL,
    path text NOT NULL,
    key text NOT NULL,
    body_hash bytea NOT NULL,
    status int NOT NULL,
    location text,
    object_id text,  -- set where the answer itself is not stored: it carried a secret, or was a stream
    body bytea,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, principal, method, path, key)
);
CREATE INDEX idempotency_age ON idempotency (created_at);

CREATE TABLE runtimes (
    tenant_id text COLLATE "C" NOT NULL REFERENCES tenants,
    id text COLLATE "C" NOT NULL,
    name text NOT NULL,
    version int NOT NULL,
    digest bytea NOT NULL,
    wire bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    retired_at timestamptz,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, name, digest),
    UNIQUE (tenant_id, name, version)
);

CREATE TABLE threads (
    tenant_id text COLLATE "C" NOT NULL REFERENCES tenants,
    id text COLLATE "C" NOT NULL,
    key text,
    runtime_id text COLLATE "C",
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, key)
);

CREATE TABLE queries (
    tenant_id text COLLATE "C" NOT NULL REFERENCES tenants,
    id text COLLATE "C" NOT NULL,
    thread_id text COLLATE "C" NOT NULL,
    runtime_id text COLLATE "C" NOT NULL,
    kind text NOT NULL CHECK (kind IN ('agent', 'plan')),
    agent text NOT NULL,
    status text NOT NULL CHECK (status IN ('queued', 'running', 'waiting', 'succeeded', 'failed', 'cancelled')),
    reason text,
    principal text NOT NULL,
    prompt text NOT NULL,
    -- {"inputs", "data", "limits", "metadata", "approvalExpiresInMs", "planId"} as they came
    request bytea NOT NULL,
    output bytea,
    error bytea,
    created_at timestamptz NOT NULL DEFAULT now(),
    started_at timestamptz,
    ended_at timestamptz,
    -- the lease: who works on it, until when, and the epoch that fences everybody else off
    lease_epoch bigint NOT NULL DEFAULT 0,
    lease_owner text,
    lease_expires_at timestamptz,
    crashes int NOT NULL DEFAULT 0,         -- epochs in a row that ended uncleanly and made no new work record
    progress_epoch bigint NOT NULL DEFAULT 0,  -- the last epoch that made a new work record
    resumed_at timestamptz,                 -- since when this epoch works
    worked_ms bigint NOT NULL DEFAULT 0,    -- what earlier epochs worked; waiting is not counted
    parked_at timestamptz,
    wake bigint NOT NULL DEFAULT 0,         -- bumped by everything a parked query may wait for
    -- the journal's head
    next_seq bigint NOT NULL DEFAULT 1,
    last_entry bigint NOT NULL DEFAULT 0,   -- the last journal entry of this epoch: a retried commit is not applied twice
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, thread_id) REFERENCES threads,
    FOREIGN KEY (tenant_id, runtime_id) REFERENCES runtimes,
    CHECK ((status IN ('succeeded', 'failed', 'cancelled')) = (ended_at IS NOT NULL))
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX queries_one_active_a_thread ON queries (tenant_id, thread_id) WHERE status IN ('running', 'waiting');
CREATE UNIQUE INDEX queries_of_all ON queries (id);  -- what spans tenants names queries by id alone
CREATE INDEX queries_of_thread ON queries (tenant_id, thread_id, id);
CREATE INDEX queries_queued ON queries (id) WHERE status = 'queued';
CREATE INDEX queries_queued_of_tenant ON queries (tenant_id, thread_id, id) WHERE status = 'queued';
CREATE INDEX queries_at_limit ON queries (parked_at) WHERE status = 'waiting' AND reason = 'limit_reached';
CREATE INDEX queries_running ON queries (tenant_id, id) WHERE status = 'running';

CREATE TABLE work_records (
    tenant_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    query_id text COLLATE "C",
    thread_id text COLLATE "C" NOT NULL,
    parent_id text COLLATE "C",
    kind text NOT NULL CHECK (kind IN ('query', 'agent', 'model_call', 'tool_call', 'predicate', 'plan_execution', 'action', 'host')),
    name text NOT NULL,
    agent text NOT NULL,
    status text NOT NULL CHECK (status IN ('running', 'waiting', 'succeeded', 'failed', 'cancelled', 'unknown')),
    position int NOT NULL DEFAULT 0,        -- the turn of a model call; the place of a tool call in its turn
    tool_invocation_id text,                -- the model's own name for a tool call, unique only within one agent's run
    model text,
    prompt_cache_key text,
    input_tokens bigint NOT NULL DEFAULT 0,
    output_tokens bigint NOT NULL DEFAULT 0,
    cache_read_tokens bigint NOT NULL DEFAULT 0,
    cache_write_tokens bigint NOT NULL DEFAULT 0,
    reasoning_tokens bigint NOT NULL DEFAULT 0,
    cost_usd double precision,
    price_date text,
    attempts int NOT NULL DEFAULT 1,
    input bytea,
    output bytea,
    error bytea,
    started_at timestamptz NOT NULL DEFAULT now(),
    ended_at timestamptz,
    PRIMARY KEY (tenant_id, id)
) WITH (fillfactor = 60);  -- each is written when it begins and again when it ends
CREATE INDEX work_of_query ON work_records (tenant_id, query_id, id);
CREATE INDEX work_memory ON work_records (tenant_id, thread_id, agent, started_at, id) WHERE kind = 'agent';

CREATE TABLE events (
    tenant_id text COLLATE "C" NOT NULL,
    query_id text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    type text NOT NULL,
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    body bytea NOT NULL,  -- the envelope without its seq, encoded once: every reader gets these bytes
    PRIMARY KEY (tenant_id, query_id, seq)
);
CREATE INDEX events_of_tenant ON events (tenant_id, xid, query_id, seq);

CREATE TABLE approvals (
    tenant_id text COLLATE "C" NOT NULL REFERENCES tenants,
    id text COLLATE "C" NOT NULL,
    kind text NOT NULL CHECK (kind IN ('plan', 'tool')),
    target text NOT NULL,
    digest bytea NOT NULL,
    subject bytea NOT NULL,
    original_subject bytea,                 -- what the agent asked for, where an approver replaced the arguments
    edits int NOT NULL DEFAULT 0,           -- how often an approver replaced the arguments: votes count for one edit only
    grant_id text COLLATE "C",              -- the remembered approval that decided it
    glimpses bytea NOT NULL,
    rule bytea NOT NULL,
    query_id text COLLATE "C" NOT NULL,
    work_id text COLLATE "C" NOT NULL,
    agent text NOT NULL,
    thread_id text COLLATE "C" NOT NULL,
    runtime_id text COLLATE "C" NOT NULL,
    requested_by text NOT NULL,
    status text NOT NULL CHECK (status IN ('pending', 'approved', 'rejected', 'revised', 'expired', 'cancelled')),
    requested_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    decided_at timestamptz,
    decided_by text,
    decision text,
    feedback text,
    partial bytea,
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, query_id) REFERENCES queries,
    CHECK ((status = 'pending') = (decided_at IS NULL)),
    CHECK (sha256(subject) = digest)
);
CREATE UNIQUE INDEX approvals_one_a_work ON approvals (tenant_id, work_id, kind);
CREATE UNIQUE INDEX approvals_one_open_a_plan ON approvals (tenant_id, target) WHERE kind = 'plan' AND status = 'pending';
CREATE INDEX approvals_of_query ON approvals (tenant_id, query_id, id);
CREATE INDEX approvals_open ON approvals (tenant_id, id) WHERE status = 'pending';
CREATE INDEX approvals_due ON approvals (expires_at) WHERE status = 'pending';

CREATE TABLE approval_votes (
    tenant_id text COLLATE "C" NOT NULL,
    approval_id text COLLATE "C" NOT NULL,
    edits int NOT NULL,                     -- of the approval when this was said; a later edit makes it void
    principal text NOT NULL,
    key_id text COLLATE "C" NOT NULL,       -- with which it was said
    decision text NOT NULL,
    scope text,                             -- 'thread': to be remembered
    at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, approval_id, edits, principal),
    FOREIGN KEY (tenant_id, approval_id) REFERENCES approvals
);

-- Remembered approvals: calls of this tool with these arguments, by this agent in this thread, need no person.
CREATE TABLE approval_grants (
    tenant_id text COLLATE "C" NOT NULL REFERENCES tenants,
    id text COLLATE "C" NOT NULL,
    approval_id text COLLATE "C" NOT NULL,  -- the decision that made it
    thread_id text COLLATE "C" NOT NULL,
    agent text NOT NULL,
    tool text NOT NULL,
    definition_digest text NOT NULL,
    args bytea NOT NULL,                    -- those that must be the same, in canonical form
    args_digest bytea NOT NULL,
    free text[] NOT NULL,                   -- names of arguments that may differ
    granted_by text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    revoked_at timestamptz,
    revoked_by text,
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, approval_id) REFERENCES approvals,
    CHECK (sha256(args) = args_digest)
);
CREATE INDEX approval_grants_in_force ON approval_grants (tenant_id, thread_id, agent, tool, args_digest)
 WHERE revoked_at IS NULL;

CREATE TABLE plans (
    tenant_id text COLLATE "C" NOT NULL REFERENCES tenants,
    id text COLLATE "C" NOT NULL,
    key text,                               -- the name a planner chose, unique in its thread
    thread_id text COLLATE "C" NOT NULL,
    runtime_id text COLLATE "C" NOT NULL,
    spec_name text NOT NULL,
    status text NOT NULL CHECK (status IN ('draft', 'approved', 'executing', 'executed', 'failed')),
    revision int NOT NULL,
    copied_from text COLLATE "C",
    query_id text COLLATE "C",              -- the query that executes it
    result bytea,                           -- what executePlan answers once it is over
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, thread_id, key),
    FOREIGN KEY (tenant_id, thread_id) REFERENCES threads
);

CREATE TABLE plan_revisions (
    tenant_id text COLLATE "C" NOT NULL,
    plan_id text COLLATE "C" NOT NULL,
    revision int NOT NULL,
    body bytea NOT NULL,
    variables boolean NOT NULL DEFAULT false,  -- strings that begin with a dagger are variables
    digest bytea NOT NULL,
    stored_by text NOT NULL,                -- the work that stored it
    stored_at timestamptz NOT NULL DEFAULT now(),
    decision text,                          -- 'reject' or 'revise', once a person said so
    feedback text,
    partial bytea,
    PRIMARY KEY (tenant_id, plan_id, revision),
    FOREIGN KEY (tenant_id, plan_id) REFERENCES plans,
    CHECK (sha256(body) = digest)
);
CREATE UNIQUE INDEX plan_revisions_one_a_work ON plan_revisions (tenant_id, stored_by);

CREATE TABLE plan_transitions (
    tenant_id text COLLATE "C" NOT NULL,
    plan_id text COLLATE "C" NOT NULL,
    n int NOT NULL,
    from_status text,
    to_status text NOT NULL,
    revision int NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    by text NOT NULL,
    work_id text COLLATE "C",
    approval_id text COLLATE "C",
    digest bytea NOT NULL,
    PRIMARY KEY (tenant_id, plan_id, n),
    FOREIGN KEY (tenant_id, plan_id) REFERENCES plans
);

-- The documents that a plan with variables names, as they were when its gate opened; work_id is the call that opened it.
CREATE TABLE plan_snapshots (
    tenant_id text COLLATE "C" NOT NULL REFERENCES tenants,
    work_id text COLLATE "C" NOT NULL,
    kind text NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (tenant_id, work_id, kind)
);

CREATE TABLE plan_actions (
    tenant_id text COLLATE "C" NOT NULL,
    plan_id text COLLATE "C" NOT NULL,
    index int NOT NULL,
    revision int NOT NULL,
    kind text NOT NULL,
    status text NOT NULL CHECK (status IN ('pending', 'dispatched', 'succeeded', 'failed', 'skipped', 'unknown')),
    attempts int NOT NULL DEFAULT 0,
    idempotency_key text NOT NULL,
    work_id text COLLATE "C",
    result bytea,
    error bytea,
    settled_by text,
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, plan_id, index),
    FOREIGN KEY (tenant_id, plan_id) REFERENCES plans
);

CREATE TABLE reference_values (
    tenant_id text COLLATE "C" NOT NULL REFERENCES tenants,
    kind text NOT NULL,
    id text COLLATE "C" NOT NULL,
    value bytea,                            -- NULL once it is gone; the row stays to tell 410 from 404
    digest bytea NOT NULL,                  -- SHA-256 of the value: what an approval shows, and dispatch compares
    size_bytes bigint NOT NULL,
    glimpse bytea NOT NULL,
    work_id text COLLATE "C",
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz,
    deleted boolean NOT NULL DEFAULT false, -- by hand: pinning does not bring it back
    PRIMARY KEY (tenant_id, kind, id)
);
ALTER TABLE reference_values ALTER COLUMN value SET STORAGE EXTERNAL;
CREATE INDEX reference_values_due ON reference_values (expires_at) WHERE value IS NOT NULL;
CREATE INDEX reference_values_recent ON reference_values (tenant_id, created_at, kind, id) WHERE value IS NOT NULL;
CREATE INDEX reference_values_of_kind ON reference_values (tenant_id, kind, created_at, id) WHERE value IS NOT NULL;

CREATE TABLE reference_pins (
    tenant_id text COLLATE "C" NOT NULL,
    kind text NOT NULL,
    id text COLLATE "C" NOT NULL,
    plan_id text COLLATE "C" NOT NULL,
    until timestamptz,                      -- NULL: until the plan is over
    PRIMARY KEY (tenant_id, kind, id, plan_id),
    FOREIGN KEY (tenant_id, kind, id) REFERENCES reference_values
);
CREATE INDEX reference_pins_of_plan ON reference_pins (tenant_id, plan_id);

-- What units of work did with references: the bytes that stayed out of prompts are counted from here.
CREATE TABLE reference_uses (
    tenant_id text COLLATE "C" NOT NULL REFERENCES tenants,
    work_id text COLLATE "C" NOT NULL,
    use text NOT NULL CHECK (use IN ('create', 'resolve', 'hydrate')),
    kind text NOT NULL,
    id text COLLATE "C" NOT NULL,
    size_bytes bigint NOT NULL,
    prompt_bytes bigint NOT NULL DEFAULT 0, -- of the value, shown to a model
    at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, work_id, use, kind, id)
);

-- Every call that leaves: tools, actions of plans and predicates. The row is the intent: it is committed before anybody
-- can take the call or a byte of it is sent. `client` calls wait for a process of the user; the others are sent by the
-- process that holds the query, under the epoch of its lease.
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
    claim_within_ms float8,                 -- how long an offer stands, each time it is made
    epoch bigint,                           -- under which the service sends it, or did
    run_before timestamptz,
    timeout_ms bigint NOT NULL,
    attempts int NOT NULL DEFAULT 0,
    result bytea,                           -- {"output"} or {"error"}; of an unknown one what is known, as {"error"}
    late_result bytea,                      -- kept as evidence, never adopted
    created_at timestamptz NOT NULL DEFAULT now(),
    done_at timestamptz,
    PRIMARY KEY (tenant_id, work_id),
    FOREIGN KEY (tenant_id, query_id) REFERENCES queries,
    CHECK ((sender = 'client') = (claim_before IS NOT NULL))
);
CREATE INDEX outgoing_calls_open ON outgoing_calls (tenant_id, name, created_at) WHERE status = 'open' AND sender = 'client';
CREATE INDEX outgoing_calls_claimed ON outgoing_calls (tenant_id, claim_token_hash) WHERE status = 'claimed';
CREATE INDEX outgoing_calls_of_query ON outgoing_calls (tenant_id, query_id);
CREATE INDEX outgoing_calls_due ON outgoing_calls (claimed_until) WHERE status = 'claimed';
CREATE INDEX outgoing_calls_unclaimed ON outgoing_calls (claim_before) WHERE status = 'open';

-- What tool calls write: the state of a thread (owner_id is the thread, kind is 'state'), the data objects of a query
-- (owner_id is the query, kind their name). The log is the truth; the document is its fold over `base`, kept beside it.
CREATE TABLE documents (
    tenant_id text COLLATE "C" NOT NULL REFERENCES tenants,
    owner_id text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    thread_id text COLLATE "C" NOT NULL,
    base bytea NOT NULL,
    body bytea NOT NULL,
    head bigint NOT NULL DEFAULT 0,         -- the number of the last write
    checkpoint bigint NOT NULL DEFAULT 0,   -- the last write with the whole document beside it
    since_bytes bigint NOT NULL DEFAULT 0,  -- of the values written after that
    PRIMARY KEY (tenant_id, owner_id, kind),
    FOREIGN KEY (tenant_id, thread_id) REFERENCES threads
);
CREATE TABLE document_writes (
    tenant_id text COLLATE "C" NOT NULL,
    owner_id text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    n bigint NOT NULL CHECK (n > 0),
    path text NOT NULL,
    method text NOT NULL CHECK (method IN ('set', 'merge', 'assign', 'push', 'concat')),
    value bytea NOT NULL,
    size_bytes bigint NOT NULL,
    glimpse bytea NOT NULL,
    checkpoint bytea,                       -- the document after this write, now and then
    work_id text COLLATE "C",               -- the call that made it; NULL for the first write of a fork
    part int NOT NULL DEFAULT 0,            -- of the writes of one call
    failed boolean NOT NULL DEFAULT false,  -- the value is the error of the call
    query_id text COLLATE "C",
    agent text,
    forked_from text,                       -- '<thread>@<write>'
    at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, owner_id, kind, n),
    FOREIGN KEY (tenant_id, owner_id, kind) REFERENCES documents,
    CHECK ((work_id IS NULL) = (forked_from IS NOT NULL))
);
CREATE UNIQUE INDEX document_writes_of_call ON document_writes (tenant_id, work_id, part);
CREATE INDEX document_checkpoints ON document_writes (tenant_id, owner_id, kind, n) WHERE checkpoint IS NOT NULL;

-- The arguments of a call with variables, as they were replaced: after a crash the call gets the same values.
CREATE TABLE call_variables (
    tenant_id text COLLATE "C" NOT NULL,
    work_id text COLLATE "C" NOT NULL,
    query_id text COLLATE "C" NOT NULL,
    args bytea NOT NULL,
    filled bytea NOT NULL,                  -- what came from which variable, and where the result goes
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, work_id),
    FOREIGN KEY (tenant_id, query_id) REFERENCES queries
);
