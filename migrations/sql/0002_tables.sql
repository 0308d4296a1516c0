-- Workspaces, artifacts, and what work records need to say what was spent.

-- Processes of the version before are at work. Every table of theirs that changes is locked here, in the order in which
-- their transactions take them: one that is under way ends, while we hold nothing that it still needs.
LOCK TABLE threads, queries, plans, plan_revisions, plan_transitions, plan_actions, plan_snapshots, approvals, documents,
    document_writes, call_variables, work_records, reference_uses, tenants IN ACCESS EXCLUSIVE MODE;

ALTER TABLE work_records ADD COLUMN provider text;  -- the kind that answers a model call
CREATE INDEX work_spent ON work_records (tenant_id, started_at) WHERE kind = 'model_call';
CREATE INDEX reference_uses_recent ON reference_uses (tenant_id, at);

-- A thread that is deleted, its queries and its plans: nobody sees them from then on, and their rows go soon.
ALTER TABLE threads ADD COLUMN deleted boolean NOT NULL DEFAULT false;
ALTER TABLE queries ADD COLUMN deleted boolean NOT NULL DEFAULT false;
ALTER TABLE plans ADD COLUMN deleted boolean NOT NULL DEFAULT false;
CREATE INDEX threads_deleted ON threads (id) WHERE deleted;
CREATE INDEX documents_of_thread ON documents (tenant_id, thread_id, owner_id);
CREATE INDEX call_variables_of_query ON call_variables (tenant_id, query_id);
-- What was decided stays when the query is deleted, without what it was about; the digest still says what that was.
ALTER TABLE approvals DROP CONSTRAINT approvals_tenant_id_query_id_fkey;
ALTER TABLE approvals ALTER COLUMN subject DROP NOT NULL;

-- Bodies of files, immutable, in the blob store by tenant and digest. `named`: a row names it, or did; one that nothing
-- names is collected a day after it was last wanted.
CREATE TABLE blobs (
    tenant_id text COLLATE "C" NOT NULL REFERENCES tenants,
    digest bytea NOT NULL CHECK (length(digest) = 32),
    size_bytes bigint NOT NULL CHECK (size_bytes >= 0),
    named boolean NOT NULL DEFAULT false,
    used_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, digest)
);
ALTER TABLE tenants ADD COLUMN blob_bytes bigint NOT NULL DEFAULT 0 CHECK (blob_bytes >= 0);  -- of its blobs, together
CREATE INDEX blobs_due ON blobs (used_at) WHERE NOT named;

-- The files of a thread: the row of a workspace orders its writers and counts, `workspace_files` is the present, and
-- `workspace_versions` what was ever written.
CREATE TABLE workspaces (
    tenant_id text COLLATE "C" NOT NULL REFERENCES tenants,
    thread_id text COLLATE "C" NOT NULL,
    files bigint NOT NULL DEFAULT 0 CHECK (files >= 0),
    bytes bigint NOT NULL DEFAULT 0 CHECK (bytes >= 0),
    PRIMARY KEY (tenant_id, thread_id),
    FOREIGN KEY (tenant_id, thread_id) REFERENCES threads
);
CREATE TABLE workspace_versions (
    tenant_id text COLLATE "C" NOT NULL,
    thread_id text COLLATE "C" NOT NULL,
    path text COLLATE "C" NOT NULL,
    version int NOT NULL CHECK (version > 0),
    digest bytea,                           -- NULL: the file was deleted
    size_bytes bigint NOT NULL,
    media_type text NOT NULL,
    work_id text COLLATE "C",               -- the call that wrote it
    query_id text COLLATE "C",
    written_by text NOT NULL,               -- the agent, or the principal of a key
    forked_from text COLLATE "C",           -- the thread that it was copied from
    at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, thread_id, path, version),
    FOREIGN KEY (tenant_id, thread_id) REFERENCES workspaces,
    FOREIGN KEY (tenant_id, digest) REFERENCES blobs
);
CREATE UNIQUE INDEX workspace_versions_of_call ON workspace_versions (tenant_id, work_id) WHERE work_id IS NOT NULL;
CREATE INDEX workspace_versions_of_blob ON workspace_versions (tenant_id, digest);
CREATE TABLE workspace_files (
    tenant_id text COLLATE "C" NOT NULL,
    thread_id text COLLATE "C" NOT NULL,
    path text COLLATE "C" NOT NULL,
    version int NOT NULL,
    skeleton text COLLATE "C" NOT NULL,     -- paths that share it look alike
    deleted boolean NOT NULL DEFAULT false, -- its versions go on counting should it be written again
    PRIMARY KEY (tenant_id, thread_id, path),
    FOREIGN KEY (tenant_id, thread_id, path, version) REFERENCES workspace_versions
);
CREATE INDEX workspace_files_present ON workspace_files (tenant_id, thread_id, path) WHERE NOT deleted;  -- lists
CREATE INDEX workspace_files_alike ON workspace_files (tenant_id, thread_id, skeleton) WHERE NOT deleted;

-- What agents and hosts published. Nothing in a record ever changes: `record` is what was published, in bytes; the other
-- columns are copies to look for it by. The records of a thread are a chain: each MAC covers the one before it, under a
-- key that is not in the database. The row of a chain orders those who publish.
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
    previous bytea NOT NULL,                -- the MAC of the record before it
    mac bytea NOT NULL,
    channel text COLLATE "C" NOT NULL,
    path text COLLATE "C" NOT NULL,
    is_directory boolean NOT NULL,
    digest bytea NOT NULL,                  -- of a directory: of the list of its files, which is a body too
    body_bytes bigint NOT NULL,             -- of the body with that digest
    work_id text COLLATE "C" NOT NULL,      -- the unit of work that published: an agent's run, or a host
    parent_work_id text COLLATE "C",
    query_id text COLLATE "C",
    agent text,
    replaces text COLLATE "C",
    call_id text COLLATE "C",               -- the call by which it did: one call publishes once
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, thread_id, n),
    FOREIGN KEY (tenant_id, thread_id) REFERENCES artifact_chains,
    FOREIGN KEY (tenant_id, digest) REFERENCES blobs
);
CREATE UNIQUE INDEX artifacts_of_call ON artifacts (tenant_id, call_id) WHERE call_id IS NOT NULL;
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
-- What came from what. A parent may have gone with its thread.
CREATE TABLE artifact_parents (
    tenant_id text COLLATE "C" NOT NULL,
    artifact_id text COLLATE "C" NOT NULL,
    parent_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, artifact_id, parent_id),
    FOREIGN KEY (tenant_id, artifact_id) REFERENCES artifacts
);
CREATE INDEX artifact_children ON artifact_parents (tenant_id, parent_id, artifact_id);
-- Work that was given the record of an artifact in place of its body, once each: what stayed out of prompts.
CREATE TABLE artifact_uses (
    tenant_id text COLLATE "C" NOT NULL REFERENCES tenants,
    work_id text COLLATE "C" NOT NULL,      -- the call
    artifact_id text COLLATE "C" NOT NULL,
    size_bytes bigint NOT NULL,
    prompt_bytes bigint NOT NULL,           -- of the record, shown to a model
    at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, work_id, artifact_id)
);
CREATE INDEX artifact_uses_recent ON artifact_uses (tenant_id, at);
-- Chains that went with their threads; `seal` says that the service knew.
CREATE TABLE artifact_tombstones (
    tenant_id text COLLATE "C" NOT NULL REFERENCES tenants,
    thread_id text COLLATE "C" NOT NULL,
    n bigint NOT NULL,
    mac bytea NOT NULL,
    seal bytea NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, thread_id)
);
