-- Tenants, keys and secrets.

-- A mark sealed with the master key of this installation: a process with another key refuses to start.
CREATE TABLE installation (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    marker bytea NOT NULL
);

-- `plangate restore` stores a random number here: a restored database begins another history.
CREATE TABLE generation (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    number bigint NOT NULL
);

CREATE TABLE tenants (
    tenant_id text COLLATE "C" PRIMARY KEY CHECK (tenant_id ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
    created_at timestamptz NOT NULL DEFAULT now(),
    -- {"runningQueries", "queuedQueries", "requestsPerSecond", "bytes", "openStreams", "openStreamsPerKey"}; an absent limit is unlimited
    limits jsonb NOT NULL DEFAULT '{}',
    -- {"plans"?: rule, "tools"?: rule}: it can only tighten the rules of a spec
    approval_floor jsonb NOT NULL DEFAULT '{}',
    -- sealed; the key of the ids of this tenant's references
    reference_secret bytea NOT NULL,
    blob_bytes bigint NOT NULL DEFAULT 0 CHECK (blob_bytes >= 0),  -- of all its blobs
    -- parked: nothing of it runs and no request is served, while it is exported to be moved. moved: it is in another cell.
    -- importing: its rows are being written; nobody sees it.
    state text NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'parked', 'moved', 'importing')),
    moved_to text COLLATE "C" CHECK ((state = 'moved') = (moved_to IS NOT NULL)),
    history bigint NOT NULL DEFAULT 0       -- a random number of its last import: cursors from before are of another history
);
CREATE INDEX tenants_inactive ON tenants (tenant_id) WHERE state <> 'active';

CREATE TABLE api_keys (
    tenant_id text COLLATE "C" NOT NULL,  -- '*' for keys of the operator
    id text COLLATE "C" NOT NULL,
    hash bytea NOT NULL UNIQUE CHECK (length(hash) = 32),
    principal text NOT NULL,
    scopes text[] NOT NULL,
    tools text[],  -- the tools that this key may serve; NULL for any
    created_at timestamptz NOT NULL DEFAULT now(),
    created_by text NOT NULL,
    expires_at timestamptz,
    revoked_at timestamptz,
    PRIMARY KEY (tenant_id, id)
);

-- Sessions of browsers, and the tickets that are exchanged for one. Each acts for one principal of one tenant, with the
-- scopes that it began with, and ends with its key.
CREATE TABLE sessions (
    tenant_id text COLLATE "C" NOT NULL REFERENCES tenants,
    id text COLLATE "C" NOT NULL,
    hash bytea NOT NULL UNIQUE CHECK (length(hash) = 32),
    is_ticket boolean NOT NULL,
    key_tenant_id text COLLATE "C" NOT NULL,  -- '*' for the operator's key
    key_id text COLLATE "C" NOT NULL,
    principal text NOT NULL,
    scopes text[] NOT NULL,
    tools text[],
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (key_tenant_id, key_id) REFERENCES api_keys (tenant_id, id)
);
CREATE INDEX sessions_of_key ON sessions (tenant_id, key_id, is_ticket, id);
CREATE INDEX sessions_expiry ON sessions (expires_at);

CREATE TABLE secrets (
    tenant_id text COLLATE "C" NOT NULL REFERENCES tenants,
    name text NOT NULL,
    sealed bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, name)
);

-- The secrets that sign the calls of the runtimes with one name. The previous one also signs for a while after a change.
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
    object_id text,  -- instead of a response that carries a secret or is a stream
    body bytea,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, principal, method, path, key)
);
CREATE INDEX idempotency_age ON idempotency (created_at);
