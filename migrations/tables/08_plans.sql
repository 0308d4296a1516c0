-- Plans.

CREATE TABLE plans (
    tenant_id text COLLATE "C" NOT NULL REFERENCES tenants,
    id text COLLATE "C" NOT NULL,
    key text,                               -- the name that a planner chose, unique in its thread
    thread_id text COLLATE "C" NOT NULL,
    runtime_id text COLLATE "C" NOT NULL,
    spec_name text NOT NULL,
    status text NOT NULL CHECK (status IN ('draft', 'approved', 'executing', 'executed', 'failed')),
    revision int NOT NULL,
    copied_from text COLLATE "C",
    query_id text COLLATE "C",              -- the query that executes it
    result bytea,                           -- the result of executePlan, once it is over
    labels jsonb NOT NULL DEFAULT '{}',     -- what people read in place of a status
    deleted boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, thread_id, key),
    FOREIGN KEY (tenant_id, thread_id) REFERENCES threads
);
CREATE INDEX plans_of_thread ON plans (tenant_id, thread_id, id);
CREATE INDEX plans_executing ON plans (tenant_id, query_id) WHERE status = 'executing';

CREATE TABLE plan_revisions (
    tenant_id text COLLATE "C" NOT NULL,
    plan_id text COLLATE "C" NOT NULL,
    revision int NOT NULL,
    body bytea NOT NULL,
    variables boolean NOT NULL DEFAULT false,  -- whether strings that begin with a dagger are variables
    digest bytea NOT NULL,
    stored_by text NOT NULL,                -- the work that stored it
    stored_at timestamptz NOT NULL DEFAULT now(),
    decision text,                          -- 'reject' or 'revise', once a person decided so
    feedback text,
    partial bytea,
    facts bytea,                            -- JSON: the facts that its kind declares, as its gate last opened
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

-- The documents that the variables of a plan name, as they were when it reached its gate; work_id is the call that
-- brought it there.
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
CREATE INDEX plan_actions_of_work ON plan_actions (tenant_id, work_id) WHERE work_id IS NOT NULL;
