-- Threads and queries.

CREATE TABLE threads (
    tenant_id text COLLATE "C" NOT NULL REFERENCES tenants,
    id text COLLATE "C" NOT NULL,
    key text,
    runtime_id text COLLATE "C",
    deleted boolean NOT NULL DEFAULT false, -- hidden from then on; its rows are removed soon, with its queries and plans
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, key)
);
CREATE INDEX threads_deleted ON threads (id) WHERE deleted;

CREATE TABLE queries (
    tenant_id text COLLATE "C" NOT NULL REFERENCES tenants,
    id text COLLATE "C" NOT NULL,
    thread_id text COLLATE "C" NOT NULL,
    runtime_id text COLLATE "C" NOT NULL,
    kind text NOT NULL CHECK (kind IN ('agent', 'plan', 'profile')),
    agent text NOT NULL,
    status text NOT NULL CHECK (status IN ('queued', 'running', 'waiting', 'succeeded', 'failed', 'cancelled')),
    reason text,
    principal text NOT NULL,
    prompt text NOT NULL,
    -- {"inputs", "data", "limits", "metadata", "approvalExpiresInMs", "planId"} as received
    request bytea NOT NULL,
    output bytea,
    error bytea,
    created_at timestamptz NOT NULL DEFAULT now(),
    started_at timestamptz,
    ended_at timestamptz,
    -- the lease: its owner, its end, and the epoch that fences off every other process
    lease_epoch bigint NOT NULL DEFAULT 0,
    lease_owner text,
    lease_expires_at timestamptz,
    crashes int NOT NULL DEFAULT 0,         -- the highest number in lost_leases; 0 makes those rows void
    progress_epoch bigint NOT NULL DEFAULT 0,  -- the last epoch that made progress
    resumed_at timestamptz,                 -- when this epoch began to work
    worked_ms bigint NOT NULL DEFAULT 0,    -- the work of earlier epochs, without waiting
    parked_at timestamptz,
    wake bigint NOT NULL DEFAULT 0,         -- incremented by everything that a parked query may wait for
    load_failures int NOT NULL DEFAULT 0,   -- times in a row that a process could not load it
    retry_at timestamptz,                   -- not before then: after a failed load, or a failed attempt to end it
    ending_code text,                       -- claimed only to be ended: why ...
    ending_message text,                    -- ... and the message of its error
    deleted boolean NOT NULL DEFAULT false,
    -- the head of the journal
    next_seq bigint NOT NULL DEFAULT 1,
    last_entry bigint NOT NULL DEFAULT 0,   -- the last entry of this epoch: a retried commit is not applied twice
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, thread_id) REFERENCES threads,
    FOREIGN KEY (tenant_id, runtime_id) REFERENCES runtimes,
    CHECK ((status IN ('succeeded', 'failed', 'cancelled')) = (ended_at IS NOT NULL))
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX queries_one_active_a_thread ON queries (tenant_id, thread_id) WHERE status IN ('running', 'waiting');
CREATE INDEX queries_of_thread ON queries (tenant_id, thread_id, id);
CREATE INDEX queries_queued ON queries (id) WHERE status = 'queued';
CREATE INDEX queries_queued_of_tenant ON queries (tenant_id, thread_id, id) WHERE status = 'queued';
CREATE INDEX queries_at_limit ON queries (parked_at) WHERE status = 'waiting' AND reason = 'limit_reached';
CREATE INDEX queries_of_status ON queries (tenant_id, status, id);
CREATE INDEX queries_ending ON queries (tenant_id, id) WHERE ending_code IS NOT NULL;
