-- Processes, and what the end of one says about the queries that it worked on (docs/decisions/0019).

-- Every process that serves or works. An id is the owner of leases (queries.lease_owner). No tenant's data.
CREATE TABLE processes (
    id text COLLATE "C" PRIMARY KEY,
    parent_id text COLLATE "C",             -- of a child process: the process that started it
    host text NOT NULL,
    pid int NOT NULL,
    holds_lock boolean NOT NULL,            -- holds a file lock in the data directory: its death is seen, never presumed
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    heartbeat_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    heartbeat_ms bigint NOT NULL,           -- writable_time.elapsed_ms at the last heartbeat
    ended_at timestamptz,
    -- stopped: it said so, or its parent asked it to. died: its parent saw it exit, or its lock was free.
    -- presumed_dead: silent for a minute in which the database was writable; taken back when it reports again.
    end_reason text CHECK (end_reason IN ('stopped', 'died', 'presumed_dead')),
    CHECK ((ended_at IS NULL) = (end_reason IS NULL))
);
CREATE INDEX processes_alive ON processes (id) WHERE ended_at IS NULL;

-- A clock that advances only while processes can write heartbeats, so that an outage of the database counts against none.
CREATE TABLE writable_time (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    elapsed_ms bigint NOT NULL DEFAULT 0,
    ticked_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
INSERT INTO writable_time DEFAULT VALUES;

-- Leases that ended without a word from their owner, numbered from 1 since the query last parked. queries.crashes is the
-- highest number; 0 makes all rows void. A row counts once its process is dead, and goes when the process reports again.
CREATE TABLE lost_leases (
    tenant_id text COLLATE "C" NOT NULL,
    query_id text COLLATE "C" NOT NULL,
    n int NOT NULL,
    epoch bigint NOT NULL,
    process_id text COLLATE "C" NOT NULL,
    queries int,                            -- of a child process that died: how many queries it ever ran
    lost_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant_id, query_id, n),
    FOREIGN KEY (tenant_id, query_id) REFERENCES queries ON DELETE CASCADE
);
CREATE INDEX lost_leases_of_process ON lost_leases (process_id);

ALTER TABLE queries
    ADD load_failures int NOT NULL DEFAULT 0,  -- times in a row that a process could not load it
    ADD retry_at timestamptz,                  -- not before then: after a failed load, or a failed attempt to end it
    ADD ending_code text,                      -- claimed only to be ended: why ...
    ADD ending_message text;                   -- ... and what its error will say
CREATE INDEX queries_ending ON queries (tenant_id, id) WHERE ending_code IS NOT NULL;

ALTER TABLE lost_leases ENABLE ROW LEVEL SECURITY;
ALTER TABLE lost_leases FORCE ROW LEVEL SECURITY;
CREATE POLICY of_tenant ON lost_leases TO plangate_app
    USING (tenant_id = nullif(current_setting('plangate.tenant', true), '*'))
    WITH CHECK (tenant_id = nullif(current_setting('plangate.tenant', true), '*'));
CREATE POLICY of_scan ON lost_leases TO plangate_scan USING (true) WITH CHECK (true);
GRANT SELECT ON lost_leases TO plangate_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON lost_leases, processes TO plangate_scan;
GRANT SELECT, UPDATE ON writable_time TO plangate_scan;

CREATE FUNCTION register_process(p_id text, p_parent text, p_host text, p_pid int, p_holds_lock boolean) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    INSERT INTO processes (id, parent_id, host, pid, holds_lock, heartbeat_ms)
    SELECT p_id, p_parent, p_host, p_pid, p_holds_lock, elapsed_ms FROM writable_time
    ON CONFLICT DO NOTHING
$$;

-- A process reports: the clock of writable time advances, leases that it lost meanwhile say nothing about their queries, its
-- leases are renewed, and leases that it does not know of (the response to its claim was lost) are given back. Returns the
-- ids whose lease it still holds. NULL p_lease_s: it works on nothing.
CREATE FUNCTION report_process(p_id text, p_tenants text[], p_ids text[], p_epochs bigint[], p_lease_s float8)
RETURNS TABLE (id text) LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
#variable_conflict use_column
BEGIN
    UPDATE writable_time SET ticked_at = clock_timestamp(), elapsed_ms = elapsed_ms
           + least(extract(epoch FROM clock_timestamp() - ticked_at) * 1000, 5000)::bigint
     WHERE only_row = (SELECT only_row FROM writable_time WHERE ticked_at < clock_timestamp() - interval '0.9 s'
                          FOR UPDATE SKIP LOCKED);
    UPDATE processes p SET heartbeat_at = clock_timestamp(), heartbeat_ms = (SELECT elapsed_ms FROM writable_time),
           ended_at = NULL, end_reason = NULL
     WHERE p.id = p_id;
    DELETE FROM lost_leases l WHERE l.process_id = p_id;
    IF p_lease_s IS NULL THEN RETURN; END IF;
    UPDATE queries q SET lease_owner = NULL, lease_expires_at = NULL
      FROM (SELECT o.tenant_id, o.id FROM queries o
             WHERE o.status = 'running' AND o.lease_owner = p_id AND o.resumed_at < clock_timestamp() - interval '5 s'
               AND NOT EXISTS (SELECT FROM unnest(p_tenants, p_ids, p_epochs) AS h(tenant, id, epoch)
                                WHERE h.tenant = o.tenant_id AND h.id = o.id AND h.epoch = o.lease_epoch)
             ORDER BY o.id FOR NO KEY UPDATE SKIP LOCKED) unknown
     WHERE q.tenant_id = unknown.tenant_id AND q.id = unknown.id;
    IF FOUND THEN PERFORM pg_notify('plangate_wake', ''); END IF;
    RETURN QUERY
    UPDATE queries q SET lease_expires_at = clock_timestamp() + make_interval(secs => p_lease_s)
      FROM (SELECT r.tenant_id, r.id FROM queries r
              JOIN unnest(p_tenants, p_ids, p_epochs) AS h(tenant, id, epoch) ON r.tenant_id = h.tenant AND r.id = h.id
             WHERE r.lease_epoch = h.epoch AND r.status = 'running' AND r.lease_owner = p_id
             ORDER BY r.id FOR NO KEY UPDATE OF r) held
     WHERE q.tenant_id = held.tenant_id AND q.id = held.id
    RETURNING q.id;
END $$;

-- Takes the leases of these queries, whose rows the caller has locked, from owners that went without a word, and notes it.
-- What such a process worked counts as far as it is known: up to when it last renewed the lease (p_lease_s before its end).
CREATE FUNCTION lose_leases(p_tenants text[], p_ids text[], p_lease_s float8, p_queries int) RETURNS void
LANGUAGE sql AS $$
    WITH lost AS (
        SELECT q.tenant_id, q.id, q.crashes + 1 AS n, q.lease_epoch, coalesce(q.lease_owner, '') AS lease_owner
          FROM queries q JOIN unnest(p_tenants, p_ids) AS a(tenant, id) ON q.tenant_id = a.tenant AND q.id = a.id),
    noted AS (
        INSERT INTO lost_leases AS l (tenant_id, query_id, n, epoch, process_id, queries)
        SELECT tenant_id, id, n, lease_epoch, lease_owner, p_queries FROM lost
        ON CONFLICT (tenant_id, query_id, n) DO UPDATE SET epoch = EXCLUDED.epoch, process_id = EXCLUDED.process_id,
               queries = EXCLUDED.queries, lost_at = EXCLUDED.lost_at)
    UPDATE queries q SET crashes = lost.n, lease_owner = NULL, lease_expires_at = NULL,
           worked_ms = q.worked_ms
               + greatest(0, extract(epoch FROM q.lease_expires_at - q.resumed_at) - p_lease_s) * 1000
      FROM lost WHERE q.tenant_id = lost.tenant_id AND q.id = lost.id
$$;

-- A process is known to have ended. One that died loses its leases at once. p_queries: how many queries a child process ever
-- ran, for what one of them left behind may end it after that one. False: the end was known before.
CREATE FUNCTION end_process(p_id text, p_reason text, p_lease_s float8, p_queries int) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE v_child boolean; v_tenants text[]; v_ids text[];
BEGIN
    UPDATE processes p SET ended_at = clock_timestamp(), end_reason = p_reason
     WHERE p.id = p_id AND (p.ended_at IS NULL OR (p.end_reason = 'presumed_dead' AND p_reason = 'died'))
    RETURNING p.parent_id IS NOT NULL INTO v_child;
    IF NOT FOUND THEN RETURN false; END IF;
    PERFORM end_process(c.id, 'stopped', p_lease_s, 0) FROM processes c  -- children end with their parent
      WHERE c.parent_id = p_id AND c.ended_at IS NULL;
    SELECT array_agg(h.tenant_id), array_agg(h.id) INTO v_tenants, v_ids FROM (
        SELECT q.tenant_id, q.id FROM queries q WHERE q.status = 'running' AND q.lease_owner = p_id
         ORDER BY q.id FOR NO KEY UPDATE) h;
    IF v_ids IS NULL THEN RETURN true; END IF;
    IF p_reason = 'died' THEN
        PERFORM lose_leases(v_tenants, v_ids, p_lease_s, CASE WHEN v_child THEN greatest(cardinality(v_ids), p_queries) END);
    ELSE  -- it left in good order, or was asked to: that is nobody's fault
        UPDATE queries q SET lease_owner = NULL, lease_expires_at = NULL,
               worked_ms = q.worked_ms + extract(epoch FROM clock_timestamp() - q.resumed_at) * 1000
          FROM unnest(v_tenants, v_ids) AS a(tenant, id) WHERE q.tenant_id = a.tenant AND q.id = a.id;
    END IF;
    PERFORM pg_notify('plangate_wake', '');
    RETURN true;
END $$;

-- Processes without a lock that were silent for so long while the database was writable are presumed dead; returns how many.
-- What nobody can ask about any more is removed.
CREATE FUNCTION presume_dead(p_silent_ms bigint) RETURNS int
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE n int;
BEGIN
    UPDATE processes p SET ended_at = clock_timestamp(), end_reason = 'presumed_dead'
      FROM writable_time w
     WHERE p.ended_at IS NULL AND NOT p.holds_lock AND w.elapsed_ms - p.heartbeat_ms > p_silent_ms;
    GET DIAGNOSTICS n = ROW_COUNT;
    DELETE FROM lost_leases l USING queries q
     WHERE q.tenant_id = l.tenant_id AND q.id = l.query_id AND (q.ended_at IS NOT NULL OR l.n > q.crashes);
    DELETE FROM processes p WHERE p.ended_at < now() - interval '7 days'
       AND NOT EXISTS (SELECT FROM lost_leases l WHERE l.process_id = p.id);
    RETURN n;
END $$;
-- Processes that hold a lock file, as far as the database knows.
CREATE FUNCTION locked_processes() RETURNS TABLE (id text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT p.id FROM processes p WHERE p.ended_at IS NULL AND p.holds_lock
$$;

-- What its lost leases say about a query. doubts: owners that shared their process with others and did not report since,
-- be they dead or not. deaths: those of them that are dead. Both begin anew with progress (p_progress). own_deaths: child
-- processes that died while they ran this query alone. share: in how large a company it may run, after a child with several
-- queries died; NULL: in any.
CREATE FUNCTION lost_lease_counts(p_tenant text, p_query text, p_upto int, p_progress bigint)
RETURNS TABLE (doubts int, deaths int, own_deaths int, share int) LANGUAGE sql STABLE AS $$
    SELECT count(*) FILTER (WHERE p.parent_id IS NULL AND l.epoch >= p_progress)::int,
           count(*) FILTER (WHERE p.parent_id IS NULL AND l.epoch >= p_progress
                              AND p.end_reason IN ('died', 'presumed_dead'))::int,
           count(*) FILTER (WHERE l.queries = 1 AND p.end_reason = 'died')::int,
           (min(l.queries) FILTER (WHERE p.end_reason = 'died') + 1) / 2
      FROM lost_leases l LEFT JOIN processes p ON p.id = l.process_id
     WHERE l.tenant_id = p_tenant AND l.query_id = p_query AND l.n <= p_upto
$$;

-- Takes up to p_limit queries that should move: woken ones and those whose lease ran out first, then queued ones whose
-- thread is free and whose tenant has room, tenants with least running first. SKIP LOCKED and the new epoch make sure that
-- one process gets each. A lease that ran out moves its query and counts nothing yet; one that the owner itself let lapse is
-- not noted at all, for the owner is alive. Suspects are queries that were in flight as two processes went silent, or as a
-- child process died: only p_suspects takes them, for a child process that runs p_company queries already, and no more at
-- once than may share one.
CREATE FUNCTION claim_queries(p_owner text, p_limit int, p_lease_s float8, p_suspects boolean, p_company int)
RETURNS TABLE (tenant_id text, id text, epoch bigint, lost boolean, share int, load_failures int)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
#variable_conflict use_column
DECLARE v_tenants text[]; v_ids text[]; v_queued text[]; v_queued_tenants text[]; v_most int := p_limit; r record;
BEGIN
    SELECT array_agg(s.tenant_id), array_agg(s.id) INTO v_tenants, v_ids FROM (
        SELECT q.tenant_id, q.id FROM queries q
         WHERE q.status = 'running' AND q.lease_expires_at < clock_timestamp() AND q.lease_owner IS DISTINCT FROM p_owner
         ORDER BY q.lease_expires_at, q.id LIMIT 500 FOR NO KEY UPDATE SKIP LOCKED) s;
    IF v_ids IS NOT NULL THEN
        PERFORM lose_leases(v_tenants, v_ids, p_lease_s, NULL);
        v_tenants := NULL; v_ids := NULL;
    END IF;
    FOR r IN
        SELECT q.tenant_id, q.id, c.share FROM queries q
          LEFT JOIN LATERAL lost_lease_counts(q.tenant_id, q.id, q.crashes, q.progress_epoch) c ON q.crashes > 0
         WHERE q.status = 'running' AND q.ending_code IS NULL
           AND (q.lease_expires_at IS NULL OR (q.lease_expires_at < clock_timestamp() AND q.lease_owner = p_owner))
           AND (q.retry_at IS NULL OR q.retry_at < clock_timestamp())
           AND p_suspects = (q.crashes > 0 AND (c.doubts >= 2 OR c.share IS NOT NULL))
           AND (c.share IS NULL OR c.share > p_company)
         ORDER BY c.share NULLS LAST, q.id LIMIT p_limit FOR NO KEY UPDATE OF q SKIP LOCKED
    LOOP
        v_most := least(v_most, coalesce(r.share - p_company, v_most));
        EXIT WHEN coalesce(cardinality(v_ids), 0) >= v_most;
        v_tenants := v_tenants || r.tenant_id; v_ids := v_ids || r.id;
    END LOOP;
    IF NOT p_suspects AND coalesce(cardinality(v_ids), 0) < p_limit THEN
        SELECT array_agg(s.tenant_id), array_agg(s.id) INTO v_queued_tenants, v_queued FROM (
            SELECT q.tenant_id, q.id FROM (
                SELECT c.tenant_id, c.id, busy.n + row_number() OVER (PARTITION BY c.tenant_id ORDER BY c.id) AS place,
                       (t.limits->>'runningQueries')::bigint AS most
                  FROM queries c
                  JOIN tenants t ON t.tenant_id = c.tenant_id
                 CROSS JOIN LATERAL (SELECT count(*) AS n FROM queries r
                                      WHERE r.tenant_id = c.tenant_id AND r.status = 'running') busy
                 WHERE c.status = 'queued'
                   AND NOT EXISTS (SELECT FROM queries o WHERE o.tenant_id = c.tenant_id AND o.thread_id = c.thread_id
                        AND (o.status IN ('running', 'waiting') OR (o.status = 'queued' AND o.id < c.id)))) ready
              JOIN queries q ON q.tenant_id = ready.tenant_id AND q.id = ready.id
             WHERE q.status = 'queued' AND (ready.most IS NULL OR ready.place <= ready.most)
             ORDER BY ready.place, q.id LIMIT p_limit - coalesce(cardinality(v_ids), 0)
               FOR NO KEY UPDATE OF q SKIP LOCKED) s;
    END IF;
    IF v_ids IS NULL AND v_queued IS NULL THEN RETURN; END IF;
    INSERT INTO events (tenant_id, query_id, seq, type, body)
    SELECT q.tenant_id, q.id, q.next_seq, 'query-status',
           event_body('query-status', q.id, q.thread_id, q.agent, '{"from":"queued","to":"running"}')
      FROM queries q JOIN unnest(v_queued_tenants, v_queued) AS a(tenant, id) ON q.tenant_id = a.tenant AND q.id = a.id
     WHERE q.status = 'queued';
    RETURN QUERY
    WITH taken AS (
        UPDATE queries q SET lease_epoch = q.lease_epoch + 1, lease_owner = p_owner, last_entry = 0, retry_at = NULL,
               lease_expires_at = clock_timestamp() + make_interval(secs => p_lease_s),
               next_seq = q.next_seq + (q.status = 'queued')::int,
               status = 'running', started_at = coalesce(q.started_at, clock_timestamp()), resumed_at = clock_timestamp()
          FROM unnest(v_tenants || v_queued_tenants, v_ids || v_queued) AS a(tenant, id)
         WHERE q.tenant_id = a.tenant AND q.id = a.id
        RETURNING q.tenant_id, q.id, q.lease_epoch, q.crashes, q.progress_epoch, q.load_failures)
    SELECT t.tenant_id, t.id, t.lease_epoch,
           EXISTS (SELECT FROM lost_leases l WHERE l.tenant_id = t.tenant_id AND l.query_id = t.id AND l.n = t.crashes
                      AND l.epoch = t.lease_epoch - 1),
           c.share, t.load_failures
      FROM taken t LEFT JOIN LATERAL lost_lease_counts(t.tenant_id, t.id, t.crashes, t.progress_epoch) c ON t.crashes > 0;
    IF v_queued IS NOT NULL THEN PERFORM tell_journal('', v_queued); END IF;
END $$;

-- For processes of the version before, while they are replaced: they get no suspect, and no count to judge by.
CREATE OR REPLACE FUNCTION claim_queries(p_owner text, p_limit int, p_lease_s float8)
RETURNS TABLE (tenant_id text, id text, epoch bigint, crashes int)
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT c.tenant_id, c.id, c.epoch, 0 FROM claim_queries(p_owner, p_limit, p_lease_s, false, 0) c
$$;

-- Queries that nobody works on, and for which p_fatal processes died, one of them at least while it ran nothing else.
CREATE FUNCTION culprits(p_fatal int) RETURNS TABLE (tenant_id text, id text, epoch bigint, deaths int, own_deaths int)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT q.tenant_id, q.id, q.lease_epoch, c.deaths, c.own_deaths FROM queries q
      CROSS JOIN LATERAL lost_lease_counts(q.tenant_id, q.id, q.crashes, q.progress_epoch) c
     WHERE q.status = 'running' AND q.ending_code IS NULL AND q.lease_expires_at IS NULL AND q.crashes > 0
       AND c.own_deaths > 0 AND c.deaths + c.own_deaths >= p_fatal
$$;
-- How many queries wait for a child process.
CREATE FUNCTION count_suspects() RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT count(*) FROM queries q
      CROSS JOIN LATERAL lost_lease_counts(q.tenant_id, q.id, q.crashes, q.progress_epoch) c
     WHERE q.status = 'running' AND q.ending_code IS NULL AND q.lease_expires_at IS NULL AND q.crashes > 0
       AND (q.retry_at IS NULL OR q.retry_at < clock_timestamp()) AND (c.doubts >= 2 OR c.share IS NOT NULL)
$$;

-- A process that leaves in good order gives its queries back at once. That proves nothing about them.
CREATE OR REPLACE FUNCTION release_leases(p_owner text, p_ids text[], p_epochs bigint[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    UPDATE queries q SET lease_expires_at = NULL, lease_owner = NULL,
           worked_ms = q.worked_ms + extract(epoch FROM clock_timestamp() - q.resumed_at) * 1000
      FROM held_leases(p_owner, p_ids, p_epochs) h WHERE q.tenant_id = h.tenant_id AND q.id = h.id;
    IF FOUND THEN PERFORM pg_notify('plangate_wake', ''); END IF;
END $$;

-- Queries that are to be ended, and whose turn it is: each is given out again only after p_again_s.
CREATE FUNCTION claim_endings(p_limit int, p_again_s float8) RETURNS TABLE (tenant_id text, id text)
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    UPDATE queries q SET retry_at = clock_timestamp() + make_interval(secs => p_again_s)
      FROM (SELECT e.tenant_id, e.id FROM queries e
             WHERE e.ending_code IS NOT NULL AND e.ended_at IS NULL
               AND (e.retry_at IS NULL OR e.retry_at < clock_timestamp())
             ORDER BY e.id LIMIT p_limit FOR NO KEY UPDATE SKIP LOCKED) due
     WHERE q.tenant_id = due.tenant_id AND q.id = due.id
    RETURNING q.tenant_id, q.id
$$;
-- Queries that are over although something below them is open: an earlier version could end one and leave that behind.
CREATE FUNCTION stranded_queries(p_limit int) RETURNS TABLE (tenant_id text, id text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT q.tenant_id, q.id FROM queries q
      JOIN (SELECT c.tenant_id, c.query_id FROM outgoing_calls c WHERE c.status IN ('open', 'claimed')
            UNION SELECT a.tenant_id, a.query_id FROM approvals a WHERE a.status = 'pending'
            UNION SELECT p.tenant_id, p.query_id FROM plans p WHERE p.status = 'executing') open_below
        ON open_below.tenant_id = q.tenant_id AND open_below.query_id = q.id
     WHERE q.ended_at IS NOT NULL LIMIT p_limit
$$;

GRANT CREATE ON SCHEMA public TO plangate_scan;  -- needed to become the owner of a function, taken back below
DO $$
DECLARE f regprocedure;
BEGIN
    FOR f IN SELECT p.oid FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace
              AND p.proname IN ('register_process', 'report_process', 'end_process', 'presume_dead', 'locked_processes',
                'claim_queries', 'culprits', 'count_suspects', 'release_leases', 'claim_endings', 'stranded_queries') LOOP
        EXECUTE format('ALTER FUNCTION %s OWNER TO plangate_scan; REVOKE ALL ON FUNCTION %s FROM PUBLIC; '
            'GRANT EXECUTE ON FUNCTION %s TO plangate_app', f, f, f);
    END LOOP;
END $$;
REVOKE CREATE ON SCHEMA public FROM plangate_scan;
