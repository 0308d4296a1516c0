-- Return the journal positions and wake counters of queries that the process was already allowed to read. Deleted queries
-- are left out, so that their readers learn that they are gone.
CREATE OR REPLACE FUNCTION query_heads(p_ids text[])
RETURNS TABLE (id text, next_seq bigint, wake bigint, epoch bigint, live boolean)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT q.id, q.next_seq, q.wake, q.lease_epoch, q.status IN ('queued', 'running', 'waiting')
      FROM queries q WHERE q.id = ANY (p_ids) AND NOT q.deleted
$$;
ALTER FUNCTION query_heads OWNER TO plangate_scan;
REVOKE ALL ON FUNCTION query_heads FROM PUBLIC;
GRANT EXECUTE ON FUNCTION query_heads TO plangate_app;
