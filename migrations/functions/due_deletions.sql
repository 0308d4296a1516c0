-- Return deleted threads of which rows are left.
CREATE OR REPLACE FUNCTION due_deletions(p_limit int) RETURNS TABLE (tenant_id text, id text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT t.tenant_id, t.id FROM threads t WHERE t.deleted
       AND t.tenant_id <> ALL (ARRAY(SELECT i.tenant_id FROM tenants i WHERE i.state <> 'active'))
     ORDER BY t.id LIMIT p_limit
$$;
ALTER FUNCTION due_deletions OWNER TO plangate_scan;
REVOKE ALL ON FUNCTION due_deletions FROM PUBLIC;
GRANT EXECUTE ON FUNCTION due_deletions TO plangate_app;
