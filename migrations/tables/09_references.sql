-- References.

CREATE TABLE reference_values (
    tenant_id text COLLATE "C" NOT NULL REFERENCES tenants,
    kind text NOT NULL,
    id text COLLATE "C" NOT NULL,
    value bytea,                            -- NULL once it is removed; the row stays, so that reads get 410 instead of 404
    digest bytea NOT NULL,                  -- SHA-256 of the value: approvals show it, dispatch compares it
    size_bytes bigint NOT NULL,
    glimpse bytea NOT NULL,
    work_id text COLLATE "C",
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz,
    deleted boolean NOT NULL DEFAULT false, -- by a request: pinning it again does not bring it back
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
    holder_id text COLLATE "C" NOT NULL,    -- a plan, or a query whose model has read the value
    until timestamptz,                      -- NULL: until the plan or the query is over
    PRIMARY KEY (tenant_id, kind, id, holder_id),
    FOREIGN KEY (tenant_id, kind, id) REFERENCES reference_values
);
CREATE INDEX reference_pins_of_holder ON reference_pins (tenant_id, holder_id);

-- What units of work did with references: the count of bytes that stayed out of prompts is read from here.
CREATE TABLE reference_uses (
    tenant_id text COLLATE "C" NOT NULL REFERENCES tenants,
    work_id text COLLATE "C" NOT NULL,
    use text NOT NULL CHECK (use IN ('create', 'resolve', 'hydrate')),
    kind text NOT NULL,
    id text COLLATE "C" NOT NULL,
    size_bytes bigint NOT NULL,
    prompt_bytes bigint NOT NULL DEFAULT 0, -- of the value, in a prompt
    at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, work_id, use, kind, id)
);
CREATE INDEX reference_uses_recent ON reference_uses (tenant_id, at);
