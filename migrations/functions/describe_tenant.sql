-- Return the limits of a tenant and what it uses, one row. Each count reads a partial index and ends at p_max. Row-level security
-- applies: a tenant sees its own row.
CREATE OR REPLACE FUNCTION describe_tenant(p_tenant text, p_max int)
RETURNS TABLE (id text, created_at timestamptz, limits text, blob_bytes bigint, queued_queries bigint, running_queries bigint,
               waiting_queries bigint, pending_approvals bigint)
LANGUAGE sql STABLE SET search_path = public, pg_temp AS $$
    SELECT t.tenant_id, t.created_at, t.limits::text, t.blob_bytes,
           (SELECT count(*) FROM (SELECT FROM queries q
             WHERE q.tenant_id = p_tenant AND q.status = 'queued' LIMIT p_max) queued),
           (SELECT count(*) FROM (SELECT FROM queries q
             WHERE q.tenant_id = p_tenant AND q.status = 'running' LIMIT p_max) running),
           (SELECT count(*) FROM (SELECT FROM queries q
             WHERE q.tenant_id = p_tenant AND q.status = 'waiting' LIMIT p_max) waiting),
           (SELECT count(*) FROM (SELECT FROM approvals a
             WHERE a.tenant_id = p_tenant AND a.status = 'pending' LIMIT p_max) pending)
      FROM tenants t
     WHERE t.tenant_id = p_tenant
$$;
REVOKE ALL ON FUNCTION describe_tenant FROM PUBLIC;
GRANT EXECUTE ON FUNCTION describe_tenant TO plangate_app;
