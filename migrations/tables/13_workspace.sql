-- Files of threads.

-- Immutable bodies of files, kept in the blob store by tenant and digest. `named`: a row names the body, or did. A body that
-- no row names is collected a day after it was last wanted.
CREATE TABLE blobs (
    tenant_id text COLLATE "C" NOT NULL REFERENCES tenants,
    digest bytea NOT NULL CHECK (length(digest) = 32),
    size_bytes bigint NOT NULL CHECK (size_bytes >= 0),
    named boolean NOT NULL DEFAULT false,
    used_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, digest)
);
CREATE INDEX blobs_due ON blobs (used_at) WHERE NOT named;

-- The files of a thread. The row of a workspace orders its writers and keeps totals, `workspace_files` is the present, and
-- `workspace_versions` is everything that was ever written.
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
    written_by text NOT NULL,               -- an agent, or the principal of a key
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
    skeleton text COLLATE "C" NOT NULL,     -- equal for paths that look alike
    deleted boolean NOT NULL DEFAULT false, -- the numbers of its versions continue if it is written again
    PRIMARY KEY (tenant_id, thread_id, path),
    FOREIGN KEY (tenant_id, thread_id, path, version) REFERENCES workspace_versions
);
CREATE INDEX workspace_files_present ON workspace_files (tenant_id, thread_id, path) WHERE NOT deleted;  -- for lists
CREATE INDEX workspace_files_alike ON workspace_files (tenant_id, thread_id, skeleton) WHERE NOT deleted;
