-- Return approvals that expired by the database's clock. The work on each happens under its tenant.
CREATE OR REPLACE FUNCTION due_approvals(p_limit int) RETURNS TABLE (tenant_id text, id text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT a.tenant_id, a.id FROM approvals a WHERE a.status = 'pending' AND a.expires_at <= now()
       AND a.tenant_id <> ALL (ARRAY(SELECT i.tenant_id FROM tenants i WHERE i.state <> 'active'))
     ORDER BY a.expires_at LIMIT p_limit
$$;
ALTER FUNCTION due_approvals OWNER TO plangate_scan;
REVOKE ALL ON FUNCTION due_approvals FROM PUBLIC;
GRANT EXECUTE ON FUNCTION due_approvals TO plangate_app;
