-- Documents.

-- Documents: the state of a thread (owner_id is the thread, kind is 'state'), the data objects of a query (owner_id is the
-- query, kind is their name) and the memory of a runtime (owner_id is 'memory:' and the runtime's name, kind is 'memory'). The
-- log of writes is the truth; `body` is its result over `base`.
CREATE TABLE documents (
    tenant_id text COLLATE "C" NOT NULL REFERENCES tenants,
    owner_id text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    thread_id text COLLATE "C",             -- NULL for memory, which belongs to no thread
    base bytea NOT NULL,
    body bytea NOT NULL,
    head bigint NOT NULL DEFAULT 0,         -- the number of the last write
    checkpoint bigint NOT NULL DEFAULT 0,   -- the last write that has the whole document beside it
    since_bytes bigint NOT NULL DEFAULT 0,  -- of the values written since then
    forgotten bigint NOT NULL DEFAULT 0,    -- the writes up to this number were deleted: hidden at once, removed soon
    purge_due boolean NOT NULL DEFAULT false, -- some of them are left
    PRIMARY KEY (tenant_id, owner_id, kind),
    FOREIGN KEY (tenant_id, thread_id) REFERENCES threads,
    CHECK ((thread_id IS NULL) = (kind = 'memory'))
);
CREATE INDEX documents_to_purge ON documents (tenant_id, owner_id, kind) WHERE purge_due;
CREATE INDEX documents_of_thread ON documents (tenant_id, thread_id, owner_id);

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
    checkpoint bytea,                       -- the document after this write; not of every write
    work_id text COLLATE "C",               -- the call that made it, if one did
    part int NOT NULL DEFAULT 0,            -- the index among the writes of one call
    failed boolean NOT NULL DEFAULT false,  -- the value is the error of the call
    query_id text COLLATE "C",
    agent text,
    forked_from text,                       -- '<thread>@<write>', of the first write of a fork
    principal text,                         -- the caller that made it, outside of any call
    at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, owner_id, kind, n),
    FOREIGN KEY (tenant_id, owner_id, kind) REFERENCES documents,
    CHECK (num_nonnulls(work_id, forked_from, principal) = 1)
);
CREATE UNIQUE INDEX document_writes_of_call ON document_writes (tenant_id, work_id, part);
CREATE INDEX document_checkpoints ON document_writes (tenant_id, owner_id, kind, n) WHERE checkpoint IS NOT NULL;
