-- Return calls whose claim or offer expired.
CREATE OR REPLACE FUNCTION due_calls(p_limit int) RETURNS TABLE (tenant_id text, work_id text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    (SELECT c.tenant_id, c.work_id FROM outgoing_calls c WHERE c.status = 'claimed' AND c.claimed_until <= now()
        AND c.tenant_id <> ALL (ARRAY(SELECT i.tenant_id FROM tenants i WHERE i.state <> 'active')) LIMIT p_limit)
    UNION ALL
    (SELECT c.tenant_id, c.work_id FROM outgoing_calls c WHERE c.status = 'open' AND c.claim_before <= now()
        AND c.tenant_id <> ALL (ARRAY(SELECT i.tenant_id FROM tenants i WHERE i.state <> 'active')) LIMIT p_limit)
$$;
ALTER FUNCTION due_calls OWNER TO plangate_scan;
REVOKE ALL ON FUNCTION due_calls FROM PUBLIC;
GRANT EXECUTE ON FUNCTION due_calls TO plangate_app;
