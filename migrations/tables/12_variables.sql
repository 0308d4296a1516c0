-- Variables.

-- The arguments of a call after its variables were filled in: after a crash the call gets the same values.
CREATE TABLE call_variables (
    tenant_id text COLLATE "C" NOT NULL,
    work_id text COLLATE "C" NOT NULL,
    query_id text COLLATE "C" NOT NULL,
    args bytea NOT NULL,
    filled bytea NOT NULL,                  -- which value came from which variable, and where the result goes
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, work_id),
    FOREIGN KEY (tenant_id, query_id) REFERENCES queries
);
CREATE INDEX call_variables_of_query ON call_variables (tenant_id, query_id);
