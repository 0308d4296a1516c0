-- Return up to p_limit tenants after p_after, with their limits and what they use, for the operator of the installation. Each
-- count reads a partial index and ends at p_max.
CREATE OR REPLACE FUNCTION list_tenants(p_after text, p_limit int, p_max int)
RETURNS TABLE (id text, created_at timestamptz, limits text, blob_bytes bigint, queued_queries bigint, running_queries bigint,
               waiting_queries bigint, pending_approvals bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT t.tenant_id, t.created_at, t.limits::text, t.blob_bytes,
           (SELECT count(*) FROM (SELECT FROM queries q
             WHERE q.tenant_id = t.tenant_id AND q.status = 'queued' LIMIT p_max) queued),
           (SELECT count(*) FROM (SELECT FROM queries q
             WHERE q.tenant_id = t.tenant_id AND q.status = 'running' LIMIT p_max) running),
           (SELECT count(*) FROM (SELECT FROM queries q
             WHERE q.tenant_id = t.tenant_id AND q.status = 'waiting' LIMIT p_max) waiting),
           (SELECT count(*) FROM (SELECT FROM approvals a
             WHERE a.tenant_id = t.tenant_id AND a.status = 'pending' LIMIT p_max) pending)
      FROM (SELECT * FROM tenants WHERE (p_after IS NULL OR tenant_id > p_after) AND state <> 'importing' ORDER BY tenant_id LIMIT p_limit) t
     ORDER BY t.tenant_id
$$;
ALTER FUNCTION list_tenants OWNER TO plangate_scan;
REVOKE ALL ON FUNCTION list_tenants FROM PUBLIC;
GRANT EXECUTE ON FUNCTION list_tenants TO plangate_app;
