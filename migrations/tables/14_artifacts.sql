-- Artifacts.

-- What agents and hosts published. A record never changes: `record` is what was published, in bytes; the other columns are
-- copies to search by. The records of a thread are a chain: each MAC covers the one before it, under a key that is not in
-- the database. The row of a chain orders its publishers.
CREATE TABLE artifact_chains (
    tenant_id text COLLATE "C" NOT NULL REFERENCES tenants,
    thread_id text COLLATE "C" NOT NULL,
    n bigint NOT NULL DEFAULT 0,
    mac bytea NOT NULL,                     -- of the last record
    PRIMARY KEY (tenant_id, thread_id),
    FOREIGN KEY (tenant_id, thread_id) REFERENCES threads
);

CREATE TABLE artifacts (
    tenant_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    thread_id text COLLATE "C" NOT NULL,
    n bigint NOT NULL CHECK (n > 0),
    record bytea NOT NULL,
    previous bytea NOT NULL,                -- the MAC of the previous record
    mac bytea NOT NULL,
    channel text COLLATE "C" NOT NULL,
    path text COLLATE "C" NOT NULL,
    is_directory boolean NOT NULL,
    digest bytea NOT NULL,                  -- of a directory: of the list of its files, which is a body, too
    body_bytes bigint NOT NULL,             -- of the body with that digest
    work_id text COLLATE "C" NOT NULL,      -- the unit of work that published it: an agent's run, or a host
    parent_work_id text COLLATE "C",
    query_id text COLLATE "C",
    agent text,
    replaces text COLLATE "C",
    first_id text COLLATE "C",              -- where the chain of `replaces` begins; NULL if it is this record
    revision int NOT NULL DEFAULT 1,        -- its place in that chain
    call_id text COLLATE "C",               -- the call that published it
    plan_id text COLLATE "C",               -- if the call carries out a plan's actions: the plan
    action_index int,                       -- the action; NULL if the call carries out several and named none
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, thread_id, n),
    FOREIGN KEY (tenant_id, thread_id) REFERENCES artifact_chains,
    FOREIGN KEY (tenant_id, digest) REFERENCES blobs
);
CREATE INDEX artifacts_of_call ON artifacts (tenant_id, call_id, id) WHERE call_id IS NOT NULL;
CREATE INDEX artifacts_of_plan ON artifacts (tenant_id, plan_id, id) WHERE plan_id IS NOT NULL;
CREATE INDEX artifacts_of_action ON artifacts (tenant_id, plan_id, action_index, id) WHERE action_index IS NOT NULL;
CREATE INDEX artifacts_of_batch ON artifacts (tenant_id, call_id, id) WHERE plan_id IS NOT NULL AND action_index IS NULL;
CREATE INDEX artifacts_of_channel ON artifacts (tenant_id, channel, id);
CREATE INDEX artifacts_of_thread ON artifacts (tenant_id, thread_id, id);
CREATE INDEX artifacts_of_path ON artifacts (tenant_id, thread_id, path, id);
CREATE INDEX artifacts_of_work ON artifacts (tenant_id, work_id, id);
CREATE INDEX artifacts_of_parent_work ON artifacts (tenant_id, parent_work_id, id) WHERE parent_work_id IS NOT NULL;
CREATE INDEX artifacts_of_query ON artifacts (tenant_id, query_id, id) WHERE query_id IS NOT NULL;
CREATE INDEX artifacts_of_agent ON artifacts (tenant_id, agent, id) WHERE agent IS NOT NULL;
CREATE INDEX artifacts_replacing ON artifacts (tenant_id, replaces, id) WHERE replaces IS NOT NULL;
CREATE INDEX artifacts_of_blob ON artifacts (tenant_id, digest);

CREATE TABLE artifact_tags (
    tenant_id text COLLATE "C" NOT NULL,
    tag text NOT NULL,
    artifact_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, tag, artifact_id),
    FOREIGN KEY (tenant_id, artifact_id) REFERENCES artifacts
);
CREATE INDEX artifact_tags_of_artifact ON artifact_tags (tenant_id, artifact_id);

-- Which artifacts an artifact was made from. A parent may be deleted with its thread.
CREATE TABLE artifact_parents (
    tenant_id text COLLATE "C" NOT NULL,
    artifact_id text COLLATE "C" NOT NULL,
    parent_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, artifact_id, parent_id),
    FOREIGN KEY (tenant_id, artifact_id) REFERENCES artifacts
);
CREATE INDEX artifact_children ON artifact_parents (tenant_id, parent_id, artifact_id);

-- What was decided about artifacts after they were published: that one is withdrawn, or chosen over revisions that compete
-- with it. These are records of the same chain: `n` is unique among both tables, since the row of the chain gives it.
CREATE TABLE artifact_decisions (
    tenant_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    thread_id text COLLATE "C" NOT NULL,    -- that of the artifact
    n bigint NOT NULL CHECK (n > 0),
    record bytea NOT NULL,
    previous bytea NOT NULL,
    mac bytea NOT NULL,
    kind text NOT NULL CHECK (kind IN ('withdraw', 'choose')),
    artifact_id text COLLATE "C" NOT NULL,
    call_id text COLLATE "C",               -- the call that decided, if one did
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, thread_id, n),
    FOREIGN KEY (tenant_id, thread_id) REFERENCES artifact_chains,
    FOREIGN KEY (tenant_id, artifact_id) REFERENCES artifacts
);
CREATE INDEX artifact_decisions_of_artifact ON artifact_decisions (tenant_id, artifact_id, id);
CREATE UNIQUE INDEX artifact_decisions_withdrawn ON artifact_decisions (tenant_id, artifact_id) WHERE kind = 'withdraw';
CREATE INDEX artifact_decisions_of_call ON artifact_decisions (tenant_id, call_id) WHERE call_id IS NOT NULL;

-- The artifacts that a decision passed over. They may be deleted with their threads. One is passed over again only after
-- the artifact that was chosen over it was withdrawn.
CREATE TABLE artifact_choices (
    tenant_id text COLLATE "C" NOT NULL,
    over_id text COLLATE "C" NOT NULL,
    decision_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, over_id, decision_id),
    FOREIGN KEY (tenant_id, decision_id) REFERENCES artifact_decisions
);
CREATE INDEX artifact_choices_of_decision ON artifact_choices (tenant_id, decision_id);

-- Calls that got the record of an artifact instead of its body: the count of bytes that stayed out of prompts is read here.
CREATE TABLE artifact_uses (
    tenant_id text COLLATE "C" NOT NULL REFERENCES tenants,
    work_id text COLLATE "C" NOT NULL,      -- the call
    artifact_id text COLLATE "C" NOT NULL,
    size_bytes bigint NOT NULL,
    prompt_bytes bigint NOT NULL,           -- of the record, in a prompt
    at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, work_id, artifact_id)
);
CREATE INDEX artifact_uses_recent ON artifact_uses (tenant_id, at);

-- The ends that a chain had in other deployments, before each move of its tenant. The records have MACs of this deployment
-- since then; `seal` proves that the service wrote the old end.
CREATE TABLE artifact_chain_links (
    tenant_id text COLLATE "C" NOT NULL,
    thread_id text COLLATE "C" NOT NULL,
    n bigint NOT NULL,
    mac bytea NOT NULL,
    seal bytea NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, thread_id, n, mac),
    FOREIGN KEY (tenant_id, thread_id) REFERENCES artifact_chains ON DELETE CASCADE
);

-- The ends of chains that were removed with their threads. `seal` proves that the service removed them.
CREATE TABLE artifact_tombstones (
    tenant_id text COLLATE "C" NOT NULL REFERENCES tenants,
    thread_id text COLLATE "C" NOT NULL,
    n bigint NOT NULL,
    mac bytea NOT NULL,
    seal bytea NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, thread_id)
);
