-- Remove writes of deleted memories, at most p_rows of them. Return how many were removed.
CREATE OR REPLACE FUNCTION purge_forgotten_writes(p_rows int) RETURNS int
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE d record; v_n int; v_left int := p_rows;
BEGIN
    FOR d IN SELECT m.tenant_id, m.owner_id, m.kind, m.forgotten FROM documents m WHERE m.purge_due
               AND m.tenant_id <> ALL (ARRAY(SELECT i.tenant_id FROM tenants i WHERE i.state <> 'active'))
              ORDER BY m.tenant_id, m.owner_id, m.kind LIMIT 100 FOR NO KEY UPDATE SKIP LOCKED LOOP
        DELETE FROM document_writes w WHERE w.tenant_id = d.tenant_id AND w.owner_id = d.owner_id AND w.kind = d.kind
           AND w.n IN (SELECT o.n FROM document_writes o WHERE o.tenant_id = d.tenant_id AND o.owner_id = d.owner_id
                          AND o.kind = d.kind AND o.n <= d.forgotten ORDER BY o.n LIMIT v_left);
        GET DIAGNOSTICS v_n = ROW_COUNT;
        v_left := v_left - v_n;
        EXIT WHEN v_left <= 0;  -- perhaps more are left
        UPDATE documents m SET purge_due = false
         WHERE m.tenant_id = d.tenant_id AND m.owner_id = d.owner_id AND m.kind = d.kind;
    END LOOP;
    RETURN p_rows - v_left;
END $$;
ALTER FUNCTION purge_forgotten_writes OWNER TO plangate_scan;
REVOKE ALL ON FUNCTION purge_forgotten_writes FROM PUBLIC;
GRANT EXECUTE ON FUNCTION purge_forgotten_writes TO plangate_app;
