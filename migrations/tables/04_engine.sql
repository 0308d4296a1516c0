-- Processes and leases.

-- Every process that serves requests or runs queries (docs/decisions/0019). Its id is the owner of leases
-- (queries.lease_owner). It holds no data of tenants.
CREATE TABLE processes (
    id text COLLATE "C" PRIMARY KEY,
    parent_id text COLLATE "C",             -- the process that started it, for a child process
    host text NOT NULL,
    pid int NOT NULL,
    holds_lock boolean NOT NULL,            -- in the data directory: its death is seen, never presumed
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    heartbeat_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    heartbeat_ms bigint NOT NULL,           -- writable_time.elapsed_ms at the last heartbeat
    closing text[] NOT NULL DEFAULT '{}',   -- closed tenants whose queries it was still stopping at the last heartbeat
    ended_at timestamptz,
    -- stopped: it reported that, or its parent asked it to stop. died: its parent saw it exit, or its lock was free.
    -- presumed_dead: silent for a minute of writable time; taken back when it reports again.
    end_reason text CHECK (end_reason IN ('stopped', 'died', 'presumed_dead')),
    CHECK ((ended_at IS NULL) = (end_reason IS NULL))
);
CREATE INDEX processes_alive ON processes (id) WHERE ended_at IS NULL;

-- A clock that advances only while processes can write heartbeats: an outage of the database counts against no process.
CREATE TABLE writable_time (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    elapsed_ms bigint NOT NULL DEFAULT 0,
    ticked_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
INSERT INTO writable_time DEFAULT VALUES;

-- Leases whose owners fell silent, numbered from 1 since the query was last parked. A row counts once its process is dead, and
-- is removed when the process reports again.
CREATE TABLE lost_leases (
    tenant_id text COLLATE "C" NOT NULL,
    query_id text COLLATE "C" NOT NULL,
    n int NOT NULL,
    epoch bigint NOT NULL,
    process_id text COLLATE "C" NOT NULL,
    queries int,                            -- how many queries it ever ran, for a child process that died
    lost_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, query_id, n),
    FOREIGN KEY (tenant_id, query_id) REFERENCES queries ON DELETE CASCADE
);
CREATE INDEX lost_leases_of_process ON lost_leases (process_id);

-- What is known of the replication of this database. The row comes to a promoted standby with everything else.
CREATE TABLE replication (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    timeline text NOT NULL,                 -- of the cluster, when a process last looked
    synchronous boolean NOT NULL,           -- whether commits waited for a standby then
    needs_recovery boolean NOT NULL DEFAULT false  -- a promotion may have lost commits: no work before `plangate recover`
);
