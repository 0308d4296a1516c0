-- Work records.

CREATE TABLE work_records (
    tenant_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    query_id text COLLATE "C",
    thread_id text COLLATE "C" NOT NULL,
    parent_id text COLLATE "C",
    kind text NOT NULL CHECK (kind IN ('query', 'agent', 'model_call', 'tool_call', 'predicate', 'plan_execution', 'action', 'host')),
    name text NOT NULL,
    agent text NOT NULL,
    status text NOT NULL CHECK (status IN ('running', 'waiting', 'succeeded', 'failed', 'cancelled', 'unknown')),
    position int NOT NULL DEFAULT 0,        -- the turn of a model call; the index of a tool call in its turn
    tool_invocation_id text,                -- the model's id of a tool call, unique within one run of an agent
    provider text,                          -- the kind that served a model call
    model text,
    prompt_cache_key text,
    input_tokens bigint NOT NULL DEFAULT 0,
    output_tokens bigint NOT NULL DEFAULT 0,
    cache_read_tokens bigint NOT NULL DEFAULT 0,
    cache_write_tokens bigint NOT NULL DEFAULT 0,
    reasoning_tokens bigint NOT NULL DEFAULT 0,
    cost_usd double precision,
    price_date text,
    prompt_bytes bigint,                    -- of a model call that came to its end: the size of its last prompt,
    prompt_tokens bigint,                   -- what the vendor counted for it,
    prompt_usd double precision,            -- and what these tokens cost
    attempts int NOT NULL DEFAULT 1,
    input bytea,
    output bytea,
    error bytea,
    started_at timestamptz NOT NULL DEFAULT now(),
    ended_at timestamptz,
    summed boolean NOT NULL DEFAULT false,  -- of a record without a parent: whether its tree is in usage_sums
    PRIMARY KEY (tenant_id, id)
) WITH (fillfactor = 60);  -- each row is written when the work begins and again when it ends
CREATE INDEX work_of_query ON work_records (tenant_id, query_id, id);
CREATE INDEX work_memory ON work_records (tenant_id, thread_id, agent, started_at, id) WHERE kind = 'agent';
CREATE INDEX work_spent ON work_records (tenant_id, started_at) WHERE kind = 'model_call';
CREATE INDEX unsummed_work ON work_records (tenant_id, id) WHERE parent_id IS NULL AND NOT summed;

-- What ended queries used, and what hosts did, by the hour in which it began. '' stands for no agent, model or runtime.
CREATE TABLE usage_sums (
    tenant_id text COLLATE "C" NOT NULL REFERENCES tenants,
    hour timestamptz NOT NULL,
    agent text NOT NULL,
    model text NOT NULL,
    runtime text NOT NULL,
    kind text NOT NULL CHECK (kind IN ('model_call', 'reference', 'artifact')),
    failed boolean NOT NULL,                -- whether the calls were in vain
    model_calls bigint NOT NULL,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    cache_read_tokens bigint NOT NULL,
    cache_write_tokens bigint NOT NULL,
    reasoning_tokens bigint NOT NULL,
    cost_usd numeric,                       -- null: no price is known
    unpriced_calls bigint NOT NULL,
    uses bigint NOT NULL,
    size_bytes bigint NOT NULL,
    prompt_bytes bigint NOT NULL,
    kept_out_bytes bigint NOT NULL,
    tokens double precision,                -- an estimate of what tokens_bytes of kept_out_bytes are in prompts,
    tokens_bytes bigint NOT NULL,
    usd double precision,                   -- and of what usd_bytes of them cost there
    usd_bytes bigint NOT NULL,
    PRIMARY KEY (tenant_id, hour, agent, model, runtime, kind, failed)
);
