-- Return queries that stopped at a limit that nobody raised within seven days.
CREATE OR REPLACE FUNCTION due_limits(p_limit int) RETURNS TABLE (tenant_id text, id text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT q.tenant_id, q.id FROM queries q WHERE q.status = 'waiting' AND q.reason = 'limit_reached'
       AND q.parked_at <= now() - interval '7 days'
       AND q.tenant_id <> ALL (ARRAY(SELECT i.tenant_id FROM tenants i WHERE i.state <> 'active')) LIMIT p_limit
$$;
ALTER FUNCTION due_limits OWNER TO plangate_scan;
REVOKE ALL ON FUNCTION due_limits FROM PUBLIC;
GRANT EXECUTE ON FUNCTION due_limits TO plangate_app;
