-- Data sources and the catalog.

-- Databases and files that a tenant's agents may read.
CREATE TABLE sources (
    tenant_id text COLLATE "C" NOT NULL REFERENCES tenants,
    name text COLLATE "C" NOT NULL,
    kind text NOT NULL CHECK (kind IN ('postgres', 'duckdb', 'sqlite')),
    secret text,                            -- the name of the secret that holds the URL
    settings bytea NOT NULL,                -- {"schemas", "paths", "limits", "sensitive", "immutable"}
    declared boolean NOT NULL DEFAULT false, -- by the operator: its paths are allowed, and no request changes it
    profile bytea,                          -- what the last complete profile found, in numbers
    profile_query_id text COLLATE "C",      -- the query of the newest profile
    profiled_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, name),
    CHECK ((kind = 'postgres') = (secret IS NOT NULL))
);

-- Descriptions of data and knowledge. `found` is what a profile found, `written` what people and programs wrote: it takes
-- precedence, field by field. Both are JSON; the columns beside them are of the two together.
CREATE TABLE catalog_entries (
    tenant_id text COLLATE "C" NOT NULL REFERENCES tenants,
    id text COLLATE "C" NOT NULL,
    kind text NOT NULL CHECK (kind IN ('table', 'column', 'relationship', 'enum_value', 'metric', 'document', 'knowledge',
        'data_quality_finding')),
    name text NOT NULL,
    qualified_name text NOT NULL,
    source text COLLATE "C",
    parent_id text COLLATE "C",             -- the table of a column, and the column of its values and findings
    tags text[] NOT NULL,
    related text[] NOT NULL,
    found bytea,
    found_by text COLLATE "C",              -- the query of the profile that found it last
    written bytea,
    search tsvector NOT NULL,
    trigrams text[] NOT NULL,               -- of its names (docs/decisions/0028)
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, id),
    CHECK (found IS NOT NULL OR written IS NOT NULL)
);
CREATE INDEX catalog_of_source ON catalog_entries (tenant_id, source, kind, id);
CREATE INDEX catalog_of_parent ON catalog_entries (tenant_id, parent_id, id);
CREATE INDEX catalog_search ON catalog_entries USING gin (search);
CREATE INDEX catalog_trigrams ON catalog_entries USING gin (trigrams);
CREATE INDEX catalog_related ON catalog_entries USING gin (related);

-- The statements that units of work ran on sources.
CREATE TABLE source_statements (
    tenant_id text COLLATE "C" NOT NULL REFERENCES tenants,
    work_id text COLLATE "C" NOT NULL,
    query_id text COLLATE "C" NOT NULL,
    source text COLLATE "C" NOT NULL,
    sql text NOT NULL,
    rows bigint,                            -- NULL if it failed, as are the bytes
    bytes bigint,
    elapsed_ms bigint NOT NULL,
    truncated boolean NOT NULL DEFAULT false,
    error text,                             -- the code of the error
    at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, work_id)
);
CREATE INDEX source_statements_of_query ON source_statements (tenant_id, query_id);
