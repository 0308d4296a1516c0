-- Return up to p_limit queries that have not ended, after the query p_id of p_tenant.
CREATE OR REPLACE FUNCTION unfinished_queries(p_tenant text, p_id text, p_limit int) RETURNS TABLE (tenant_id text, id text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT q.tenant_id, q.id FROM queries q
     WHERE q.ended_at IS NULL AND (q.tenant_id, q.id) > (p_tenant, p_id)
     ORDER BY q.tenant_id, q.id LIMIT p_limit
$$;
ALTER FUNCTION unfinished_queries OWNER TO plangate_scan;
REVOKE ALL ON FUNCTION unfinished_queries FROM PUBLIC;
GRANT EXECUTE ON FUNCTION unfinished_queries TO plangate_app;
