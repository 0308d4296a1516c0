-- Return the journal positions and wake counters of queries that the process was already allowed to read. Deleted queries
-- are left out, so that their readers learn that they are gone.
CREATE OR REPLACE FUNCTION query_heads(p_tenants text[], p_ids text[])
RETURNS TABLE (tenant_id text, id text, next_seq bigint, wake bigint, epoch bigint, live boolean)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT q.tenant_id, q.id, q.next_seq, q.wake, q.lease_epoch, q.status IN ('queued', 'running', 'waiting')
      FROM queries q JOIN unnest(p_tenants, p_ids) AS a(tenant, id) ON q.tenant_id = a.tenant AND q.id = a.id
     WHERE NOT q.deleted
$$;
ALTER FUNCTION query_heads OWNER TO plangate_scan;
REVOKE ALL ON FUNCTION query_heads FROM PUBLIC;
GRANT EXECUTE ON FUNCTION query_heads TO plangate_app;
