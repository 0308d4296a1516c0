-- Documents.

-- Documents that tool calls write: the state of a thread (owner_id is the thread, kind is 'state') and the data objects of a
-- query (owner_id is the query, kind is their name). The log of writes is the truth; `body` is its result over `base`.
CREATE TABLE documents (
    tenant_id text COLLATE "C" NOT NULL REFERENCES tenants,
    owner_id text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    thread_id text COLLATE "C" NOT NULL,
    base bytea NOT NULL,
    body bytea NOT NULL,
    head bigint NOT NULL DEFAULT 0,         -- the number of the last write
    checkpoint bigint NOT NULL DEFAULT 0,   -- the last write that has the whole document beside it
    since_bytes bigint NOT NULL DEFAULT 0,  -- of the values written since then
    PRIMARY KEY (tenant_id, owner_id, kind),
    FOREIGN KEY (tenant_id, thread_id) REFERENCES threads
);
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
    work_id text COLLATE "C",               -- the call that made it; NULL for the first write of a fork
    part int NOT NULL DEFAULT 0,            -- the index among the writes of one call
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
