-- Statements that carry concurrency. Lock order everywhere: thread, query, plan, approval.

-- The envelope of an event that the database itself writes; its seq is put in front when it is read.
CREATE FUNCTION event_body(p_type text, p_query text, p_thread text, p_agent text, p_extra json) RETURNS bytea
LANGUAGE sql STABLE AS $$
    SELECT convert_to(format(
        '{"type":%s,"queryId":%s,"threadId":%s,"workId":%s,"parentWorkId":null,"agent":%s,"at":"%s",%s',
        to_json(p_type), to_json(p_query), to_json(p_thread), to_json('wrk_' || substr(p_query, 5)), to_json(p_agent),
        to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
        substr(p_extra::text, 2)), 'UTF8')
$$;

-- One hint a transaction; a hint that is too long says "look at everything you watch".
CREATE FUNCTION tell_journal(p_origin text, p_queries text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE names text := array_to_string(p_queries, ',');
BEGIN
    PERFORM pg_notify('plangate_journal', p_origin || '|' || CASE WHEN length(names) > 7000 THEN '*' ELSE names END);
END $$;

-- Adds events to one query inside the caller's transaction. The head row gives the numbers, so number order is
-- commit order. With p_epoch the caller must still hold the query. Returns the first number, or NULL: not his,
-- or over.
CREATE FUNCTION append_events(p_query text, p_epoch bigint, p_types text[], p_bodies bytea[]) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE first_seq bigint; tenant text;
BEGIN
    UPDATE queries SET next_seq = next_seq + cardinality(p_types)
     WHERE tenant_id = current_setting('plangate.tenant') AND id = p_query
       AND status NOT IN ('succeeded', 'failed', 'cancelled')  -- nothing follows the terminal event
       AND (p_epoch IS NULL OR (lease_epoch = p_epoch AND status = 'running'))
    RETURNING next_seq - cardinality(p_types), tenant_id INTO first_seq, tenant;
    IF first_seq IS NULL THEN RETURN NULL; END IF;
    INSERT INTO events (tenant_id, query_id, seq, type, body)
    SELECT tenant, p_query, first_seq + n - 1, t, b FROM unnest(p_types, p_bodies) WITH ORDINALITY AS e(t, b, n);
    PERFORM tell_journal('', ARRAY[p_query]);
    RETURN first_seq;
END $$;

-- Accepts a query: thread, row, root work record and first events in one call. With p_owner it is also begun
-- here, under a lease, when its thread is free and the tenant has room. p_line: the runtime must be the newest of
-- this line, which the caller only remembers. Outcomes: accepted, started, busy, full, no_thread, retired, stale.
CREATE FUNCTION submit_query(p_id text, p_thread text, p_new_thread text, p_thread_key text, p_runtime text, p_kind text,
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
        INSERT INTO threads (tenant_id, id, runtime_id) VALUES (v_tenant, p_new_thread, p_runtime);
        v_thread := p_new_thread;
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
    v_started := p_owner IS NOT NULL AND NOT v_busy AND ((v_limits->>'runningQueries') IS NULL OR
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
        PERFORM tell_journal('', ARRAY[p_id]);
        PERFORM pg_notify('plangate_wake', '');
    END IF;
    RETURN QUERY SELECT CASE WHEN v_started THEN 'started' ELSE 'accepted' END, v_thread, v_started::int::bigint, v_bodies;
END $$;

-- One batch of the group-commit writer: entries of many queries and tenants. Rows are locked in id order; an
-- entry of an owner that lost its query is left out ('lost'), one that a retry repeats is left out ('repeated'),
-- parking over a wake-up that fell between is left out ('woken'); the others are 'written'.
CREATE FUNCTION journal_commit(
    p_origin text,
    q_tenant text[], q_id text[], q_epoch bigint[], q_entry bigint[], q_progress boolean[],
    q_status text[], q_reason text[], q_wake bigint[], q_output bytea[], q_error bytea[],
    e_q int[], e_type text[], e_body bytea[],
    w_q int[], w_id text[], w_parent text[], w_kind text[], w_name text[], w_agent text[], w_status text[], w_position int[],
    w_invocation text[], w_model text[], w_cache_key text[], w_in bigint[], w_out bigint[], w_read bigint[], w_write bigint[],
    w_reason bigint[], w_cost float8[], w_price_date text[], w_attempts int[],
    w_input bytea[], w_output bytea[], w_error bytea[])
RETURNS TABLE (outcomes text[], first_seqs bigint[]) LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
-- Planned once: with the real lengths of the arrays each call was planned anew and read the whole of queries.
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    r record; oc text[] := array_fill(NULL::text, ARRAY[cardinality(q_id)]);
    fs bigint[] := array_fill(0::bigint, ARRAY[cardinality(q_id)]); th text[] := array_fill(NULL::text, ARRAY[cardinality(q_id)]);
BEGIN
    FOR r IN SELECT a.i, q.thread_id, q.next_seq, CASE
                WHEN q.lease_epoch <> a.epoch OR (q.status <> 'running' AND q.last_entry < a.entry) THEN 'lost'
                WHEN q.last_entry >= a.entry THEN 'repeated'
                WHEN a.wake IS NOT NULL AND q.wake <> a.wake THEN 'woken' ELSE 'written' END AS outcome
               FROM unnest(q_tenant, q_id, q_epoch, q_entry, q_wake) WITH ORDINALITY AS a(tenant, id, epoch, entry, wake, i)
               JOIN queries q ON q.tenant_id = a.tenant AND q.id = a.id
              ORDER BY q.id FOR NO KEY UPDATE OF q LOOP
        oc[r.i] := r.outcome; fs[r.i] := r.next_seq; th[r.i] := r.thread_id;
    END LOOP;
    UPDATE queries q SET next_seq = q.next_seq + a.n, last_entry = a.entry,
           progress_epoch = CASE WHEN a.progress THEN a.epoch ELSE q.progress_epoch END,
           status = coalesce(a.status, q.status),
           reason = CASE WHEN a.status IS NULL THEN q.reason ELSE a.reason END,
           output = coalesce(a.output, q.output), error = coalesce(a.error, q.error),
           ended_at = CASE WHEN a.status IN ('succeeded', 'failed', 'cancelled') THEN now() END,
           parked_at = CASE WHEN a.status = 'waiting' THEN now() ELSE q.parked_at END,
           worked_ms = CASE WHEN a.status IS NULL THEN q.worked_ms
               ELSE q.worked_ms + extract(epoch FROM clock_timestamp() - q.resumed_at) * 1000 END,
           crashes = CASE WHEN a.status IS NULL THEN q.crashes ELSE 0 END,
           lease_owner = CASE WHEN a.status IS NULL THEN q.lease_owner END,
           lease_expires_at = CASE WHEN a.status IS NULL THEN q.lease_expires_at END
      FROM (SELECT u.*, (SELECT count(*) FROM unnest(e_q) e WHERE e = u.i) AS n
              FROM unnest(q_tenant, q_id, q_epoch, q_entry, q_progress, q_status, q_reason, q_output, q_error)
                   WITH ORDINALITY AS u(tenant, id, epoch, entry, progress, status, reason, output, error, i)) a
     WHERE q.tenant_id = a.tenant AND q.id = a.id AND oc[a.i] = 'written';
    INSERT INTO events (tenant_id, query_id, seq, type, body)
    SELECT q_tenant[e.q], q_id[e.q], fs[e.q] + row_number() OVER (PARTITION BY e.q ORDER BY e.n) - 1, e.type, e.body
      FROM unnest(e_q, e_type, e_body) WITH ORDINALITY AS e(q, type, body, n) WHERE oc[e.q] = 'written';
    IF cardinality(w_id) > 0 THEN
        INSERT INTO work_records AS w (tenant_id, id, query_id, thread_id, parent_id, kind, name, agent, status, position,
               tool_invocation_id, model, prompt_cache_key, input_tokens, output_tokens, cache_read_tokens,
               cache_write_tokens, reasoning_tokens, cost_usd, price_date, attempts, input, output, error, ended_at)
        SELECT q_tenant[x.q], x.id, q_id[x.q], th[x.q], x.parent, x.kind, x.name, x.agent, x.status, x.position, x.invocation,
               x.model, x.cache_key, x.tin, x.tout, x.tread, x.twrite, x.treason, x.cost, x.price_date, x.attempts,
               x.input, x.output, x.error, CASE WHEN x.status NOT IN ('running', 'waiting') THEN now() END
          FROM unnest(w_q, w_id, w_parent, w_kind, w_name, w_agent, w_status, w_position, w_invocation, w_model, w_cache_key,
                      w_in, w_out, w_read, w_write, w_reason, w_cost, w_price_date, w_attempts, w_input, w_output, w_error)
               WITH ORDINALITY AS x(q, id, parent, kind, name, agent, status, position, invocation, model, cache_key, tin, tout,
                    tread, twrite, treason, cost, price_date, attempts, input, output, error, n)
         WHERE oc[x.q] = 'written'
        ON CONFLICT (tenant_id, id) DO UPDATE SET status = EXCLUDED.status,
               model = coalesce(EXCLUDED.model, w.model),
               input_tokens = EXCLUDED.input_tokens, output_tokens = EXCLUDED.output_tokens,
               cache_read_tokens = EXCLUDED.cache_read_tokens, cache_write_tokens = EXCLUDED.cache_write_tokens,
               reasoning_tokens = EXCLUDED.reasoning_tokens, cost_usd = EXCLUDED.cost_usd,
               price_date = coalesce(EXCLUDED.price_date, w.price_date), attempts = EXCLUDED.attempts,
               input = coalesce(EXCLUDED.input, w.input),
               output = coalesce(EXCLUDED.output, w.output), error = coalesce(EXCLUDED.error, w.error),
               ended_at = EXCLUDED.ended_at;
    END IF;
    PERFORM tell_journal(p_origin, q_id);
    -- A query that lets go makes room for the next of its thread and of its tenant.
    IF EXISTS (SELECT FROM unnest(q_tenant, q_status) AS s(tenant, status) WHERE s.status IS NOT NULL
               AND EXISTS (SELECT FROM queries q WHERE q.tenant_id = s.tenant AND q.status = 'queued')) THEN
        PERFORM pg_notify('plangate_wake', '');
    END IF;
    RETURN QUERY SELECT oc, fs;
END $$;

-- Takes up to p_limit queries that should move: woken ones and those whose lease ran out first, then queued ones
-- whose thread is free and whose tenant has room, tenants with least running first. SKIP LOCKED and the new epoch
-- make sure that one process gets each. An epoch that ended uncleanly without a new work record counts as a crash.
-- Of the queries that crashed twice (the next crash sets one aside) a process works on one at a time, until that one
-- gets further: the crash then is the crash of that one, not of all that were in the same processes by chance.
CREATE FUNCTION claim_queries(p_owner text, p_limit int, p_lease_s float8)
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
           status = 'running', started_at = coalesce(q.started_at, clock_timestamp()), resumed_at = clock_timestamp(),
           crashes = CASE WHEN q.lease_expires_at IS NULL THEN q.crashes
                          WHEN q.progress_epoch = q.lease_epoch THEN 1 ELSE q.crashes + 1 END
     WHERE q.id = ANY (coalesce(v_ids, '{}') || coalesce(v_queued, '{}'))
    RETURNING q.tenant_id, q.id, q.lease_epoch, q.crashes;
    IF v_queued IS NOT NULL THEN PERFORM tell_journal('', v_queued); END IF;
END $$;

-- Something that a query may wait for has happened: its counter moves, and a parked query goes back to work with
-- its event, all in the transaction of what happened. The process that runs it, or a free one, is told.
CREATE FUNCTION wake_query(p_query text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE v_tenant text := current_setting('plangate.tenant'); q record;
BEGIN
    UPDATE queries SET wake = wake + 1 WHERE tenant_id = v_tenant AND id = p_query AND status IN ('running', 'waiting')
    RETURNING status, thread_id, agent INTO q;
    IF NOT FOUND THEN RETURN false; END IF;
    IF q.status = 'waiting' THEN
        PERFORM append_events(p_query, NULL, ARRAY['query-status'], ARRAY[event_body('query-status', p_query, q.thread_id,
            q.agent, '{"from":"waiting","to":"running"}')]);
        UPDATE queries SET status = 'running', reason = NULL, lease_expires_at = NULL, lease_owner = NULL
         WHERE tenant_id = v_tenant AND id = p_query;
    END IF;
    PERFORM pg_notify('plangate_wake', p_query);
    RETURN true;
END $$;

-- The rows that a process holds, locked in id order like those of a journal's batch: neither waits for the other's.
CREATE FUNCTION held_leases(p_owner text, p_ids text[], p_epochs bigint[]) RETURNS TABLE (tenant_id text, id text)
LANGUAGE sql AS $$
    SELECT q.tenant_id, q.id FROM queries q JOIN unnest(p_ids, p_epochs) AS a(id, epoch) ON q.id = a.id
     WHERE q.lease_epoch = a.epoch AND q.status = 'running' AND q.lease_owner = p_owner
     ORDER BY q.id FOR NO KEY UPDATE OF q
$$;

-- Renews all leases of a process in one statement; what does not come back is no longer its own.
CREATE FUNCTION renew_leases(p_owner text, p_ids text[], p_epochs bigint[], p_lease_s float8) RETURNS TABLE (id text)
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    UPDATE queries q SET lease_expires_at = clock_timestamp() + make_interval(secs => p_lease_s)
      FROM held_leases(p_owner, p_ids, p_epochs) h WHERE q.tenant_id = h.tenant_id AND q.id = h.id
    RETURNING q.id
$$;

-- A process that leaves in good order gives its queries back at once.
CREATE FUNCTION release_leases(p_owner text, p_ids text[], p_epochs bigint[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    UPDATE queries q SET lease_expires_at = NULL, lease_owner = NULL, crashes = 0,
           worked_ms = q.worked_ms + extract(epoch FROM clock_timestamp() - q.resumed_at) * 1000
      FROM held_leases(p_owner, p_ids, p_epochs) h WHERE q.tenant_id = h.tenant_id AND q.id = h.id;
    IF FOUND THEN PERFORM pg_notify('plangate_wake', ''); END IF;
END $$;

-- Where the journals of these queries stand: what a process asks once a second for all it watches, and what a
-- worker asks for the wake counters of all it runs. The ids are ones it was already allowed to read.
CREATE FUNCTION query_heads(p_ids text[]) RETURNS TABLE (id text, next_seq bigint, wake bigint, epoch bigint, live boolean)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT q.id, q.next_seq, q.wake, q.lease_epoch, q.status IN ('queued', 'running', 'waiting')
      FROM queries q WHERE q.id = ANY (p_ids)
$$;

-- The key with this hash, whichever tenant's it is: who calls is not known before.
CREATE FUNCTION find_key(p_hash bytea) RETURNS TABLE (id text, tenant_id text, principal text, scopes text[], tools text[], expires_at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT k.id, k.tenant_id, k.principal, k.scopes, k.tools, k.expires_at FROM api_keys k
     WHERE k.hash = p_hash AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now())
$$;

-- Tenants and the operator's keys are made by the operator's command line and by the operator's key only.
CREATE FUNCTION create_tenant(p_id text, p_secret bytea, p_limits jsonb, p_floor jsonb) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO tenants (tenant_id, reference_secret, limits, approval_floor)
    VALUES (p_id, p_secret, p_limits, p_floor) ON CONFLICT DO NOTHING;
    RETURN FOUND;
END $$;
-- What is NULL stays as it is. False: there is no such tenant.
CREATE FUNCTION set_tenant(p_id text, p_limits jsonb, p_floor jsonb) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    UPDATE tenants SET limits = coalesce(p_limits, limits), approval_floor = coalesce(p_floor, approval_floor)
     WHERE tenant_id = p_id;
    RETURN FOUND;
END $$;
CREATE FUNCTION create_operator_key(p_id text, p_hash bytea, p_by text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    INSERT INTO api_keys (tenant_id, id, hash, principal, scopes, created_by)
    VALUES ('*', p_id, p_hash, 'operator', '{admin}', p_by)
$$;
CREATE FUNCTION any_key() RETURNS boolean LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT EXISTS (SELECT FROM api_keys WHERE revoked_at IS NULL)
$$;

-- What is due, by the database's clock: ids only; the work on each happens under its tenant.
CREATE FUNCTION due_approvals(p_limit int) RETURNS TABLE (tenant_id text, id text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT a.tenant_id, a.id FROM approvals a WHERE a.status = 'pending' AND a.expires_at <= now()
     ORDER BY a.expires_at LIMIT p_limit
$$;
-- Queries that stopped at a limit which nobody raised within seven days.
CREATE FUNCTION due_limits(p_limit int) RETURNS TABLE (tenant_id text, id text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT q.tenant_id, q.id FROM queries q WHERE q.status = 'waiting' AND q.reason = 'limit_reached'
       AND q.parked_at <= now() - interval '7 days' LIMIT p_limit
$$;
CREATE FUNCTION due_calls(p_limit int) RETURNS TABLE (tenant_id text, work_id text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    (SELECT c.tenant_id, c.work_id FROM outgoing_calls c WHERE c.status = 'claimed' AND c.claimed_until <= now() LIMIT p_limit)
    UNION ALL
    (SELECT c.tenant_id, c.work_id FROM outgoing_calls c WHERE c.status = 'open' AND c.claim_before <= now() LIMIT p_limit)
$$;
-- Payloads past their time that no plan pins, in small batches; returns how many went.
CREATE FUNCTION sweep_references(p_limit int) RETURNS int
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE n int;
BEGIN
    UPDATE reference_values r SET value = NULL WHERE (r.tenant_id, r.kind, r.id) IN (
        SELECT v.tenant_id, v.kind, v.id FROM reference_values v
         WHERE v.value IS NOT NULL AND v.expires_at <= now()
           AND NOT EXISTS (SELECT FROM reference_pins p WHERE p.tenant_id = v.tenant_id AND p.kind = v.kind AND p.id = v.id
                            AND (p.until IS NULL OR p.until > now()))
         LIMIT p_limit FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN n;
END $$;
CREATE FUNCTION sweep_idempotency(p_limit int) RETURNS int
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE n int;
BEGIN
    DELETE FROM idempotency WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM idempotency WHERE created_at < now() - interval '24 hours' LIMIT p_limit));
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN n;
END $$;

-- The database's generation: a cursor of another cluster, another database or a restored timeline is not ours.
CREATE FUNCTION database_generation() RETURNS text LANGUAGE sql STABLE AS $$
    SELECT substr(md5(s.system_identifier || ':' || c.timeline_id || ':' || d.oid), 1, 8)
      FROM pg_control_system() s, pg_control_checkpoint() c, pg_database d WHERE d.datname = current_database()
$$;

REVOKE ALL ON FUNCTION create_operator_key, set_tenant FROM PUBLIC;  -- the database's owner only

GRANT CREATE ON SCHEMA public TO plangate_scan;  -- needed to become the owner of a function, taken back below
DO $$
DECLARE f text;
BEGIN
    FOREACH f IN ARRAY ARRAY['journal_commit', 'claim_queries', 'renew_leases', 'release_leases', 'query_heads', 'find_key',
        'create_tenant', 'any_key', 'due_approvals', 'due_limits', 'due_calls', 'sweep_references',
        'sweep_idempotency'] LOOP
        EXECUTE (SELECT format('ALTER FUNCTION %s OWNER TO plangate_scan; REVOKE ALL ON FUNCTION %s FROM PUBLIC; '
            'GRANT EXECUTE ON FUNCTION %s TO plangate_app', p.oid::regprocedure, p.oid::regprocedure, p.oid::regprocedure)
            FROM pg_proc p WHERE p.proname = f AND p.pronamespace = 'public'::regnamespace);
    END LOOP;
END $$;
REVOKE CREATE ON SCHEMA public FROM plangate_scan;
