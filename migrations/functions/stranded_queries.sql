-- Return queries that are over although something below them is open. Each part reads a partial index.
CREATE OR REPLACE FUNCTION stranded_queries(p_limit int) RETURNS TABLE (tenant_id text, id text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT q.tenant_id, q.id FROM queries q
      JOIN (SELECT c.tenant_id, c.query_id FROM outgoing_calls c WHERE c.status = 'open'
            UNION SELECT c.tenant_id, c.query_id FROM outgoing_calls c WHERE c.status = 'claimed'
            UNION SELECT a.tenant_id, a.query_id FROM approvals a WHERE a.status = 'pending'
            UNION SELECT p.tenant_id, p.query_id FROM plans p WHERE p.status = 'executing') open_below
        ON open_below.tenant_id = q.tenant_id AND open_below.query_id = q.id
     WHERE q.ended_at IS NOT NULL
       AND q.tenant_id <> ALL (ARRAY(SELECT i.tenant_id FROM tenants i WHERE i.state <> 'active')) LIMIT p_limit
$$;
ALTER FUNCTION stranded_queries OWNER TO plangate_scan;
REVOKE ALL ON FUNCTION stranded_queries FROM PUBLIC;
GRANT EXECUTE ON FUNCTION stranded_queries TO plangate_app;
