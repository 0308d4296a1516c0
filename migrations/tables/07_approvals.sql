-- Approvals.

CREATE TABLE approvals (
    tenant_id text COLLATE "C" NOT NULL REFERENCES tenants,
    id text COLLATE "C" NOT NULL,
    kind text NOT NULL CHECK (kind IN ('plan', 'tool')),
    target text NOT NULL,
    digest bytea NOT NULL,
    subject bytea,                          -- NULL once its thread is deleted; the digest stays
    original_subject bytea,                 -- of the agent's own arguments, if an approver edited them
    edits int NOT NULL DEFAULT 0,           -- how often an approver edited the arguments; a vote counts for one edit
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
    waiting_parents int NOT NULL DEFAULT 0, -- agents that wait for the agent that asks
    waiting_actions int NOT NULL DEFAULT 0, -- actions of the plan
    PRIMARY KEY (tenant_id, id),
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
    edits int NOT NULL,                     -- of the approval at the time of the vote; a later edit voids it
    principal text NOT NULL,
    key_id text COLLATE "C" NOT NULL,       -- the key that cast it
    decision text NOT NULL,
    scope text,                             -- 'thread': remember it
    at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, approval_id, edits, principal),
    FOREIGN KEY (tenant_id, approval_id) REFERENCES approvals
);

-- What people write to each other about an approval. It is deleted together with the thread.
CREATE TABLE approval_comments (
    tenant_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    approval_id text COLLATE "C" NOT NULL,
    principal text NOT NULL,
    text text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, approval_id, id),
    FOREIGN KEY (tenant_id, approval_id) REFERENCES approvals
);

-- Remembered approvals: calls of this tool with these arguments, by this agent in this thread, need no decision.
CREATE TABLE approval_grants (
    tenant_id text COLLATE "C" NOT NULL REFERENCES tenants,
    id text COLLATE "C" NOT NULL,
    approval_id text COLLATE "C" NOT NULL,  -- the decision that granted it
    thread_id text COLLATE "C" NOT NULL,
    agent text NOT NULL,
    tool text NOT NULL,
    definition_digest text NOT NULL,
    args bytea NOT NULL,                    -- the arguments that must be equal, in canonical form
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
CREATE INDEX approval_grants_of_thread ON approval_grants (tenant_id, thread_id, id);
CREATE INDEX approval_grants_in_force ON approval_grants (tenant_id, thread_id, agent, tool, args_digest)
 WHERE revoked_at IS NULL;
