-- Accept a query: write its thread, its row, its root work record and its first events. With p_owner, also start it
-- under a lease if its thread is free and the tenant has room. p_line: the runtime must be the newest of this name (the
-- caller has it from a cache). Outcomes: accepted, started, busy, full, no_thread, retired, stale.
CREATE OR REPLACE FUNCTION submit_query(p_id text, p_thread text, p_new_thread text, p_thread_key text, p_runtime text, p_kind text,
    p_agent text, p_principal text, p_prompt text, p_request bytea, p_if_busy text, p_owner text, p_lease_s float8, p_line text)
RETURNS TABLE (outcome text, thread_id text, epoch bigint, bodies bytea[]) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    v_tenant text := current_setting('plangate.tenant');
    v_limits jsonb; v_thread text; v_busy boolean := false; v_started boolean; v_old boolean := true;
    v_bodies bytea[];
BEGIN
    IF p_line IS NOT NULL AND p_runtime IS DISTINCT FROM (SELECT r.id FROM runtimes r WHERE r.tenant_id = v_tenant
            AND r.name = p_line AND r.retired_at IS NULL ORDER BY r.version DESC LIMIT 1) THEN
        RETURN QUERY SELECT 'stale', p_thread, 0::bigint, NULL::bytea[]; RETURN;
    END IF;
    IF p_thread IS NOT NULL THEN
        SELECT t.id INTO v_thread FROM threads t WHERE t.tenant_id = v_tenant AND t.id = p_thread FOR NO KEY UPDATE;
        IF v_thread IS NULL THEN RETURN QUERY SELECT 'no_thread', p_thread, 0::bigint, NULL::bytea[]; RETURN; END IF;
    ELSIF p_thread_key IS NOT NULL THEN
        INSERT INTO threads AS t (tenant_id, id, key, runtime_id) VALUES (v_tenant, p_new_thread, p_thread_key, p_runtime)
        ON CONFLICT (tenant_id, key) DO UPDATE SET key = EXCLUDED.key RETURNING t.id INTO v_thread;
        v_old := v_thread <> p_new_thread;
    ELSE
        v_thread := p_new_thread;  -- inserted below: a query that is rejected leaves no thread
        v_old := false;
    END IF;
    IF v_old THEN
        SELECT EXISTS (SELECT FROM queries q WHERE q.tenant_id = v_tenant AND q.thread_id = v_thread
                        AND q.status IN ('queued', 'running', 'waiting')) INTO v_busy;
        IF v_busy AND p_if_busy = 'reject' THEN RETURN QUERY SELECT 'busy', v_thread, 0::bigint, NULL::bytea[]; RETURN; END IF;
    END IF;
    IF p_kind = 'agent' AND EXISTS (SELECT FROM runtimes r WHERE r.tenant_id = v_tenant AND r.id = p_runtime
            AND r.retired_at IS NOT NULL) AND NOT (v_old AND EXISTS (SELECT FROM threads t WHERE t.tenant_id = v_tenant
            AND t.id = v_thread AND t.runtime_id = p_runtime)) THEN  -- a thread keeps the version it began with
        RETURN QUERY SELECT 'retired', v_thread, 0::bigint, NULL::bytea[]; RETURN;
    END IF;
    SELECT t.limits INTO v_limits FROM tenants t WHERE t.tenant_id = v_tenant;
    IF (v_limits->>'queuedQueries') IS NOT NULL AND (SELECT count(*) FROM queries q WHERE q.tenant_id = v_tenant
            AND q.status = 'queued') >= (v_limits->>'queuedQueries')::bigint THEN
        RETURN QUERY SELECT 'full', v_thread, 0::bigint, NULL::bytea[]; RETURN;
    END IF;
    IF p_thread IS NULL AND p_thread_key IS NULL THEN
        INSERT INTO threads (tenant_id, id, runtime_id) VALUES (v_tenant, v_thread, p_runtime);
    END IF;
    v_started := p_owner IS NOT NULL AND NOT v_busy AND may_dispatch() AND ((v_limits->>'runningQueries') IS NULL OR
        (SELECT count(*) FROM queries q WHERE q.tenant_id = v_tenant AND q.status = 'running')
            < (v_limits->>'runningQueries')::bigint);
    INSERT INTO queries (tenant_id, id, thread_id, runtime_id, kind, agent, status, principal, prompt, request,
            started_at, resumed_at, lease_epoch, lease_owner, lease_expires_at, next_seq)
    VALUES (v_tenant, p_id, v_thread, p_runtime, p_kind, p_agent,
            CASE WHEN v_started THEN 'running' ELSE 'queued' END, p_principal, p_prompt, p_request,
            CASE WHEN v_started THEN clock_timestamp() END, CASE WHEN v_started THEN clock_timestamp() END,
            v_started::int, CASE WHEN v_started THEN p_owner END,
            CASE WHEN v_started THEN clock_timestamp() + make_interval(secs => p_lease_s) END,
            CASE WHEN v_started THEN 3 ELSE 2 END);
    INSERT INTO work_records (tenant_id, id, query_id, thread_id, kind, name, agent, status)
    VALUES (v_tenant, 'wrk_' || substr(p_id, 5), p_id, v_thread, 'query', p_kind, p_agent, 'running');
    v_bodies := ARRAY[event_body('query-status', p_id, v_thread, p_agent, '{"from":null,"to":"queued"}')];
    IF v_started THEN
        v_bodies := v_bodies || event_body('query-status', p_id, v_thread, p_agent, '{"from":"queued","to":"running"}');
    END IF;
    INSERT INTO events (tenant_id, query_id, seq, type, body)
    SELECT v_tenant, p_id, n, 'query-status', b FROM unnest(v_bodies) WITH ORDINALITY AS e(b, n);
    -- Nobody can follow it yet, and its first step tells the streams over everything; unless it stays queued.
    IF NOT v_started THEN
        PERFORM notify_journal('', ARRAY[v_tenant], ARRAY[p_id]);
        PERFORM pg_notify('plangate_wake', '');
    END IF;
    RETURN QUERY SELECT CASE WHEN v_started THEN 'started' ELSE 'accepted' END, v_thread, v_started::int::bigint, v_bodies;
END $$;
