-- Return bodies that no row named when they were last looked at, a day after they were last wanted.
CREATE OR REPLACE FUNCTION due_blobs(p_limit int) RETURNS TABLE (tenant_id text, digest text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT b.tenant_id, encode(b.digest, 'hex') FROM blobs b WHERE NOT b.named AND b.used_at < now() - interval '24 hours'
       AND b.tenant_id <> ALL (ARRAY(SELECT i.tenant_id FROM tenants i WHERE i.state <> 'active'))
     ORDER BY b.used_at LIMIT p_limit
$$;
ALTER FUNCTION due_blobs OWNER TO plangate_scan;
REVOKE ALL ON FUNCTION due_blobs FROM PUBLIC;
GRANT EXECUTE ON FUNCTION due_blobs TO plangate_app;
