-- Remove expired values that nothing pins, at most p_limit of them. Return how many were removed.
CREATE OR REPLACE FUNCTION sweep_references(p_limit int) RETURNS int
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE n int;
BEGIN
    UPDATE reference_values r SET value = NULL WHERE (r.tenant_id, r.kind, r.id) IN (
        SELECT v.tenant_id, v.kind, v.id FROM reference_values v
         WHERE v.value IS NOT NULL AND v.expires_at <= now()
           AND v.tenant_id <> ALL (ARRAY(SELECT i.tenant_id FROM tenants i WHERE i.state <> 'active'))
           -- Not EXISTS, which Postgres may answer by reading all pins and all active queries.
           AND (SELECT true FROM reference_pins p WHERE p.tenant_id = v.tenant_id AND p.kind = v.kind AND p.id = v.id
                   AND (p.until IS NULL OR p.until > now())
                   AND (p.holder_id NOT LIKE 'qry_%' OR (
                        SELECT q.status IN ('queued', 'running', 'waiting') FROM queries q
                         WHERE q.tenant_id = p.tenant_id AND q.id = p.holder_id)) LIMIT 1) IS NULL
         LIMIT p_limit FOR UPDATE SKIP LOCKED);
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN n;
END $$;
ALTER FUNCTION sweep_references OWNER TO plangate_scan;
REVOKE ALL ON FUNCTION sweep_references FROM PUBLIC;
GRANT EXECUTE ON FUNCTION sweep_references TO plangate_app;
