-- Commit one batch of the journal's writer: entries of many queries and tenants. Rows are locked in the order of their
-- ids. Outcomes: an entry whose process lost the query is 'lost', one that a retry repeats is 'repeated', parking a query
-- that was woken meanwhile is 'woken'; none of these is written. All others are 'written'.
CREATE OR REPLACE FUNCTION journal_commit(
    p_origin text, p_entries journal_entry[], p_events journal_event[], p_work journal_work[])
RETURNS TABLE (outcomes text[], first_seqs bigint[]) LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp
-- Planned once: with the real lengths of the arrays each call was planned anew and read the whole of queries.
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    r record; n int := cardinality(p_entries);
    outcome text[] := array_fill(NULL::text, ARRAY[n]);
    first_seq bigint[] := array_fill(0::bigint, ARRAY[n]);
    thread text[] := array_fill(NULL::text, ARRAY[n]);
    tenant text[] := array_fill(NULL::text, ARRAY[n]);
    query text[] := array_fill(NULL::text, ARRAY[n]);
    event_count int[] := array_fill(0, ARRAY[n]);
    added journal_event;
BEGIN
    IF NOT may_dispatch() THEN  -- what the process has in memory may be ahead of the database
        RETURN QUERY SELECT array_fill('lost'::text, ARRAY[n]), first_seq; RETURN;
    END IF;
    FOR r IN SELECT a.i, q.tenant_id, q.id, q.thread_id, q.next_seq, CASE
                WHEN q.lease_epoch <> a.epoch OR (q.status <> 'running' AND q.last_entry < a.number) THEN 'lost'
                WHEN q.last_entry >= a.number THEN 'repeated'
                WHEN a.wake IS NOT NULL AND q.wake <> a.wake THEN 'woken' ELSE 'written' END AS outcome
               FROM (SELECT ordinality AS i, e.tenant_id AS tenant, e.* FROM unnest(p_entries) WITH ORDINALITY AS e) a
               JOIN queries q ON q.tenant_id = a.tenant AND q.id = a.query_id
              ORDER BY q.id FOR NO KEY UPDATE OF q LOOP
        outcome[r.i] := r.outcome; first_seq[r.i] := r.next_seq; thread[r.i] := r.thread_id;
        tenant[r.i] := r.tenant_id; query[r.i] := r.id;
    END LOOP;
    -- Counted here, and not joined below: the generic plan compares every event with every entry.
    FOREACH added IN ARRAY p_events LOOP
        event_count[added.entry] := event_count[added.entry] + 1;
    END LOOP;
    UPDATE queries q SET next_seq = q.next_seq + event_count[a.i], last_entry = a.number,
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
      FROM (SELECT ordinality AS i, e.tenant_id AS tenant, e.* FROM unnest(p_entries) WITH ORDINALITY AS e) a
     WHERE q.tenant_id = a.tenant AND q.id = a.query_id AND outcome[a.i] = 'written';
    INSERT INTO events (tenant_id, query_id, seq, type, body)
    SELECT tenant[v.entry], query[v.entry],
           first_seq[v.entry] + row_number() OVER (PARTITION BY v.entry ORDER BY v.ordinality) - 1, v.type, v.body
      FROM unnest(p_events) WITH ORDINALITY AS v
     WHERE outcome[v.entry] = 'written';
    IF cardinality(p_work) > 0 THEN
        INSERT INTO work_records AS w (tenant_id, query_id, thread_id, id, parent_id, kind, name, agent, status, position,
               tool_invocation_id, provider, model, prompt_cache_key, input_tokens, output_tokens, cache_read_tokens,
               cache_write_tokens, reasoning_tokens, cost_usd, price_date, prompt_bytes, prompt_tokens, prompt_usd, attempts,
               input, output, error, ended_at)
        SELECT e.tenant_id, e.query_id, thread[x.entry], x.id, x.parent_id, x.kind, x.name, x.agent, x.status, x.position,
               x.tool_invocation_id, x.provider, x.model, x.prompt_cache_key, x.input_tokens, x.output_tokens,
               x.cache_read_tokens, x.cache_write_tokens, x.reasoning_tokens, x.cost_usd, x.price_date, x.prompt_bytes,
               x.prompt_tokens, x.prompt_usd, x.attempts, x.input, x.output, x.error,
               CASE WHEN x.status NOT IN ('running', 'waiting') THEN now() END
          FROM unnest(p_work) AS x JOIN unnest(p_entries) WITH ORDINALITY AS e ON e.ordinality = x.entry
         WHERE outcome[x.entry] = 'written'
        ON CONFLICT (tenant_id, id) DO UPDATE SET status = EXCLUDED.status,
               provider = coalesce(EXCLUDED.provider, w.provider), model = coalesce(EXCLUDED.model, w.model),
               input_tokens = EXCLUDED.input_tokens, output_tokens = EXCLUDED.output_tokens,
               cache_read_tokens = EXCLUDED.cache_read_tokens, cache_write_tokens = EXCLUDED.cache_write_tokens,
               reasoning_tokens = EXCLUDED.reasoning_tokens, cost_usd = EXCLUDED.cost_usd,
               price_date = coalesce(EXCLUDED.price_date, w.price_date),
               prompt_bytes = EXCLUDED.prompt_bytes, prompt_tokens = EXCLUDED.prompt_tokens,
               prompt_usd = EXCLUDED.prompt_usd, attempts = EXCLUDED.attempts,
               input = coalesce(EXCLUDED.input, w.input),
               output = coalesce(EXCLUDED.output, w.output), error = coalesce(EXCLUDED.error, w.error),
               ended_at = EXCLUDED.ended_at;
    END IF;
    PERFORM notify_journal(p_origin, ARRAY(SELECT e.tenant_id FROM unnest(p_entries) e),
                           ARRAY(SELECT e.query_id FROM unnest(p_entries) e));
    -- A query that was parked or has ended makes room for the next of its thread and of its tenant.
    IF EXISTS (SELECT FROM (SELECT e.tenant_id AS tenant FROM unnest(p_entries) e WHERE e.status IS NOT NULL) s
               WHERE EXISTS (SELECT FROM queries q WHERE q.tenant_id = s.tenant AND q.status = 'queued')) THEN
        PERFORM pg_notify('plangate_wake', '');
    END IF;
    RETURN QUERY SELECT outcome, first_seq;
END $$;
ALTER FUNCTION journal_commit OWNER TO plangate_scan;
REVOKE ALL ON FUNCTION journal_commit FROM PUBLIC;
GRANT EXECUTE ON FUNCTION journal_commit TO plangate_app;
