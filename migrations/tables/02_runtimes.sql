-- Registered runtimes.

CREATE TABLE runtimes (
    tenant_id text COLLATE "C" NOT NULL REFERENCES tenants,
    id text COLLATE "C" NOT NULL,
    name text NOT NULL,
    version int NOT NULL,
    digest bytea NOT NULL,
    wire bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    retired_at timestamptz,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, name, digest),
    UNIQUE (tenant_id, name, version)
);
