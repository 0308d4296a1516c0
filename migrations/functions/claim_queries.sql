-- Claim up to p_limit queries for a process: first those that were woken or whose lease expired, then queued ones whose
-- thread is free and whose tenant has room, tenants with the fewest running queries first. SKIP LOCKED and the new epoch
-- give each query to one process.
--
-- An expired lease moves its query and counts nothing yet. A lease that its own owner let expire is not recorded: the
-- owner is alive. Suspects are queries that were in flight when two processes fell silent, or when a child process died.
-- Only p_suspects claims them, for a child process that runs p_company queries already, and no more of them than may
-- share one child.
CREATE OR REPLACE FUNCTION claim_queries(p_owner text, p_limit int, p_lease_s float8, p_suspects boolean, p_company int)
RETURNS TABLE (tenant_id text, id text, epoch bigint, lost boolean, share int, load_failures int)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
#variable_conflict use_column
DECLARE v_tenants text[]; v_ids text[]; v_queued text[]; v_queued_tenants text[]; v_most int := p_limit; r record;
BEGIN
    IF NOT may_dispatch() THEN RETURN; END IF;
    SELECT array_agg(s.tenant_id), array_agg(s.id) INTO v_tenants, v_ids FROM (
        SELECT q.tenant_id, q.id FROM queries q
         WHERE q.status = 'running' AND q.lease_expires_at < clock_timestamp() AND q.lease_owner IS DISTINCT FROM p_owner
         ORDER BY q.lease_expires_at, q.id LIMIT 500 FOR NO KEY UPDATE SKIP LOCKED) s;
    IF v_ids IS NOT NULL THEN
        PERFORM take_lost_leases(v_tenants, v_ids, p_lease_s, NULL);
        v_tenants := NULL; v_ids := NULL;
    END IF;
    FOR r IN
        SELECT q.tenant_id, q.id, c.share FROM queries q
          LEFT JOIN LATERAL lost_lease_counts(q.tenant_id, q.id, q.crashes, q.progress_epoch) c ON q.crashes > 0
         WHERE q.status = 'running' AND q.ending_code IS NULL
           AND q.tenant_id <> ALL (ARRAY(SELECT i.tenant_id FROM tenants i WHERE i.state <> 'active'))
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
                  JOIN tenants t ON t.tenant_id = c.tenant_id AND t.state = 'active'
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
    IF v_queued IS NOT NULL THEN PERFORM notify_journal('', v_queued_tenants, v_queued); END IF;
END $$;
ALTER FUNCTION claim_queries OWNER TO plangate_scan;
REVOKE ALL ON FUNCTION claim_queries FROM PUBLIC;
GRANT EXECUTE ON FUNCTION claim_queries TO plangate_app;
