-- As it was, but for worked_ms.
-- Takes up to p_limit queries that should move: woken ones and those whose lease ran out first, then queued ones
-- whose thread is free and whose tenant has room, tenants with least running first. SKIP LOCKED and the new epoch
-- make sure that one process gets each. An epoch that ended uncleanly without a new work record counts as a crash.
-- Of the queries that crashed twice (the next crash sets one aside) a process works on one at a time, until that one
-- gets further: the crash then is the crash of that one, not of all that were in the same processes by chance.
-- What a process that went without a word had worked counts as far as it is known: up to when it last renewed the lease.
CREATE OR REPLACE FUNCTION claim_queries(p_owner text, p_limit int, p_lease_s float8)
RETURNS TABLE (tenant_id text, id text, epoch bigint, crashes int)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
#variable_conflict use_column
DECLARE v_ids text[]; v_queued text[]; v_suspect text;
BEGIN
    IF NOT EXISTS (SELECT FROM queries q WHERE q.status = 'running' AND q.lease_owner = p_owner AND q.crashes = 2
                    AND q.progress_epoch <> q.lease_epoch AND q.lease_expires_at >= clock_timestamp()) THEN
        SELECT q.id INTO v_suspect FROM queries q
         WHERE q.status = 'running' AND q.lease_expires_at < clock_timestamp() AND q.crashes = 1
           AND q.progress_epoch <> q.lease_epoch
         ORDER BY q.lease_expires_at, q.id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED;
    END IF;
    SELECT array_agg(s.id) INTO v_ids FROM (
        SELECT q.id FROM queries q
         WHERE q.status = 'running' AND (q.lease_expires_at IS NULL OR (q.lease_expires_at < clock_timestamp()
               AND (q.crashes <> 1 OR q.progress_epoch = q.lease_epoch OR q.id = v_suspect)))
         ORDER BY q.lease_expires_at NULLS FIRST, q.id LIMIT p_limit FOR NO KEY UPDATE SKIP LOCKED) s;
    IF coalesce(cardinality(v_ids), 0) < p_limit THEN
        SELECT array_agg(s.id) INTO v_queued FROM (
            SELECT q.id FROM (
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
      FROM queries q WHERE q.id = ANY (v_queued) AND q.status = 'queued';
    RETURN QUERY
    UPDATE queries q SET lease_epoch = q.lease_epoch + 1, lease_owner = p_owner, last_entry = 0,
           lease_expires_at = clock_timestamp() + make_interval(secs => p_lease_s),
           next_seq = q.next_seq + (q.status = 'queued')::int,
           worked_ms = q.worked_ms + CASE WHEN q.status = 'running' AND q.lease_expires_at IS NOT NULL
               THEN greatest(0, extract(epoch FROM q.lease_expires_at - q.resumed_at) - p_lease_s) * 1000 ELSE 0 END,
           status = 'running', started_at = coalesce(q.started_at, clock_timestamp()), resumed_at = clock_timestamp(),
           crashes = CASE WHEN q.lease_expires_at IS NULL THEN q.crashes
                          WHEN q.progress_epoch = q.lease_epoch THEN 1 ELSE q.crashes + 1 END
     WHERE q.id = ANY (coalesce(v_ids, '{}') || coalesce(v_queued, '{}'))
    RETURNING q.tenant_id, q.id, q.lease_epoch, q.crashes;
    IF v_queued IS NOT NULL THEN PERFORM tell_journal('', v_queued); END IF;
END $$;
