-- Return which of these queries, counted from 1, have the event with this number already, and which are deleted. The
-- process was already allowed to read them. Queries that have not moved are left out, because mostly all have not.
CREATE OR REPLACE FUNCTION moved_queries(p_tenants text[], p_ids text[], p_seqs bigint[])
RETURNS TABLE (n bigint, deleted boolean)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT a.n, q.id IS NULL
      FROM unnest(p_tenants, p_ids, p_seqs) WITH ORDINALITY AS a(tenant, id, seq, n)
      LEFT JOIN queries q ON q.tenant_id = a.tenant AND q.id = a.id AND NOT q.deleted
     WHERE q.id IS NULL OR q.next_seq > a.seq
$$;
ALTER FUNCTION moved_queries OWNER TO plangate_scan;
REVOKE ALL ON FUNCTION moved_queries FROM PUBLIC;
GRANT EXECUTE ON FUNCTION moved_queries TO plangate_app;
