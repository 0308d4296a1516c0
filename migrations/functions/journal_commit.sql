-- Commit one batch of the journal's writer: entries of many queries and tenants. Rows are locked in the order of their
-- ids. Outcomes: an entry whose process lost the query is 'lost', one that a retry repeats is 'repeated', parking a query
-- that was woken meanwhile is 'woken'; none of these is written. All others are 'written'.
CREATE OR REPLACE FUNCTION journal_commit(
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
    PERFORM notify_journal(p_origin, q_tenant, q_id);
    -- A query that lets go makes room for the next of its thread and of its tenant.
    IF EXISTS (SELECT FROM unnest(q_tenant, q_status) AS s(tenant, status) WHERE s.status IS NOT NULL
               AND EXISTS (SELECT FROM queries q WHERE q.tenant_id = s.tenant AND q.status = 'queued')) THEN
        PERFORM pg_notify('plangate_wake', '');
    END IF;
    RETURN QUERY SELECT oc, fs;
END $$;
ALTER FUNCTION journal_commit OWNER TO plangate_scan;
REVOKE ALL ON FUNCTION journal_commit FROM PUBLIC;
GRANT EXECUTE ON FUNCTION journal_commit TO plangate_app;
