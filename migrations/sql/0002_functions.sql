-- As it was, with the provider of a model call. The one of before stays beside it: PostgreSQL tells them apart by their
-- number of arguments, and processes of the version before go on while they are replaced.
CREATE FUNCTION journal_commit(
    p_origin text,
    q_tenant text[], q_id text[], q_epoch bigint[], q_entry bigint[], q_progress boolean[],
    q_status text[], q_reason text[], q_wake bigint[], q_output bytea[], q_error bytea[],
    e_q int[], e_type text[], e_body bytea[],
    w_q int[], w_id text[], w_parent text[], w_kind text[], w_name text[], w_agent text[], w_status text[], w_position int[],
    w_invocation text[], w_provider text[], w_model text[], w_cache_key text[], w_in bigint[], w_out bigint[], w_read bigint[], w_write bigint[],
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
               tool_invocation_id, provider, model, prompt_cache_key, input_tokens, output_tokens, cache_read_tokens,
               cache_write_tokens, reasoning_tokens, cost_usd, price_date, attempts, input, output, error, ended_at)
        SELECT q_tenant[x.q], x.id, q_id[x.q], th[x.q], x.parent, x.kind, x.name, x.agent, x.status, x.position, x.invocation,
               x.provider, x.model, x.cache_key, x.tin, x.tout, x.tread, x.twrite, x.treason, x.cost, x.price_date, x.attempts,
               x.input, x.output, x.error, CASE WHEN x.status NOT IN ('running', 'waiting') THEN now() END
          FROM unnest(w_q, w_id, w_parent, w_kind, w_name, w_agent, w_status, w_position, w_invocation, w_provider, w_model, w_cache_key,
                      w_in, w_out, w_read, w_write, w_reason, w_cost, w_price_date, w_attempts, w_input, w_output, w_error)
               WITH ORDINALITY AS x(q, id, parent, kind, name, agent, status, position, invocation, provider, model, cache_key, tin, tout,
                    tread, twrite, treason, cost, price_date, attempts, input, output, error, n)
         WHERE oc[x.q] = 'written'
        ON CONFLICT (tenant_id, id) DO UPDATE SET status = EXCLUDED.status,
               provider = coalesce(EXCLUDED.provider, w.provider), model = coalesce(EXCLUDED.model, w.model),
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

-- What waits in the whole installation, for who operates it: numbers only. Each is found over a partial index.
CREATE FUNCTION operator_counts() RETURNS TABLE (name text, label text, value float8)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT 'queries', 'queued', count(*)::float8 FROM queries WHERE status = 'queued'
    UNION ALL SELECT 'queries', 'running', count(*) FROM queries WHERE status = 'running'
    UNION ALL SELECT 'queries_overdue', '', count(*) FROM queries
               WHERE status = 'running' AND lease_expires_at < clock_timestamp()
    UNION ALL SELECT 'queries_waiting', coalesce(reason, 'none'), count(*) FROM queries WHERE status = 'waiting' GROUP BY reason
    UNION ALL (SELECT 'queue_oldest_seconds', '', extract(epoch FROM clock_timestamp() - created_at) FROM queries
                WHERE status = 'queued' ORDER BY id LIMIT 1)
    UNION ALL SELECT 'approvals_pending', '', count(*) FROM approvals WHERE status = 'pending'
    UNION ALL SELECT 'approvals_oldest_seconds', '', extract(epoch FROM clock_timestamp() - min(requested_at)) FROM approvals
               WHERE status = 'pending' HAVING count(*) > 0
    UNION ALL SELECT 'client_calls', 'open', count(*) FROM outgoing_calls WHERE status = 'open' AND sender = 'client'
    UNION ALL SELECT 'client_calls_oldest_seconds', '', extract(epoch FROM clock_timestamp() - min(created_at))
                FROM outgoing_calls WHERE status = 'open' AND sender = 'client' HAVING count(*) > 0
    UNION ALL SELECT 'client_calls', 'claimed', count(*) FROM outgoing_calls WHERE status = 'claimed' AND sender = 'client'
$$;

-- The one way in which records of artifacts go: with their whole thread. What stays is where their chain ended, under a
-- seal of the service's. False: the thread is not deleted, has no chain, or one that ended elsewhere than the seal says.
CREATE FUNCTION forget_artifacts(p_thread text, p_n bigint, p_mac bytea, p_seal bytea) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE v_tenant text := current_setting('plangate.tenant'); v_digests bytea[];
BEGIN
    PERFORM FROM artifact_chains c JOIN threads t ON t.tenant_id = v_tenant AND t.id = p_thread AND t.deleted
      WHERE c.tenant_id = v_tenant AND c.thread_id = p_thread AND c.n = p_n AND c.mac = p_mac FOR UPDATE OF c;
    IF NOT FOUND THEN RETURN false; END IF;
    DELETE FROM artifact_tags t USING artifacts a
     WHERE a.tenant_id = v_tenant AND a.thread_id = p_thread AND t.tenant_id = v_tenant AND t.artifact_id = a.id;
    DELETE FROM artifact_parents p USING artifacts a
     WHERE a.tenant_id = v_tenant AND a.thread_id = p_thread AND p.tenant_id = v_tenant AND p.artifact_id = a.id;
    WITH gone AS (DELETE FROM artifacts WHERE tenant_id = v_tenant AND thread_id = p_thread RETURNING digest)
    -- Those of files go with the files: to lock them now, and others later, would be against the order of digests.
    SELECT array_agg(DISTINCT g.digest) INTO v_digests FROM gone g WHERE NOT EXISTS (
        SELECT FROM workspace_versions v WHERE v.tenant_id = v_tenant AND v.thread_id = p_thread AND v.digest = g.digest);
    PERFORM let_go_of_blobs(v_digests);
    DELETE FROM artifact_chains WHERE tenant_id = v_tenant AND thread_id = p_thread;
    INSERT INTO artifact_tombstones (tenant_id, thread_id, n, mac, seal) VALUES (v_tenant, p_thread, p_n, p_mac, p_seal);
    RETURN true;
END $$;

-- For what goes over all tenants, one after the other.
CREATE FUNCTION tenant_ids() RETURNS TABLE (tenant_id text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT t.tenant_id FROM tenants t ORDER BY 1
$$;

-- Bodies that no row named when they were last looked at, a day after they were last wanted.
CREATE FUNCTION due_blobs(p_limit int) RETURNS TABLE (tenant_id text, digest text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT b.tenant_id, encode(b.digest, 'hex') FROM blobs b WHERE NOT b.named AND b.used_at < now() - interval '24 hours'
     ORDER BY b.used_at LIMIT p_limit
$$;

GRANT CREATE ON SCHEMA public TO plangate_scan;  -- needed to become the owner of a function, taken back below
DO $$
DECLARE f regprocedure;
BEGIN
    FOR f IN SELECT p.oid FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace
              AND p.proname IN ('journal_commit', 'operator_counts', 'forget_artifacts', 'tenant_ids', 'due_blobs') LOOP
        EXECUTE format('ALTER FUNCTION %s OWNER TO plangate_scan; REVOKE ALL ON FUNCTION %s FROM PUBLIC; '
            'GRANT EXECUTE ON FUNCTION %s TO plangate_app', f, f, f);
    END LOOP;
END $$;
REVOKE CREATE ON SCHEMA public FROM plangate_scan;
