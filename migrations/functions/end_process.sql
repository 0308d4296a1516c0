-- Record that a process has ended. The leases of one that died expire at once. p_queries: how many queries a child
-- process ever ran, because what one of them left behind may end it later. False: the end was known before.
CREATE OR REPLACE FUNCTION end_process(p_id text, p_reason text, p_lease_s float8, p_queries int) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE v_child boolean; v_tenants text[]; v_ids text[];
BEGIN
    UPDATE processes p SET ended_at = clock_timestamp(), end_reason = p_reason
     WHERE p.id = p_id AND (p.ended_at IS NULL OR (p.end_reason = 'presumed_dead' AND p_reason = 'died'))
    RETURNING p.parent_id IS NOT NULL INTO v_child;
    IF NOT FOUND THEN RETURN false; END IF;
    PERFORM end_process(c.id, 'stopped', p_lease_s, 0) FROM processes c  -- children end with their parent
      WHERE c.parent_id = p_id AND c.ended_at IS NULL;
    SELECT array_agg(h.tenant_id), array_agg(h.id) INTO v_tenants, v_ids FROM (
        SELECT q.tenant_id, q.id FROM queries q WHERE q.status = 'running' AND q.lease_owner = p_id
         ORDER BY q.id FOR NO KEY UPDATE) h;
    IF v_ids IS NULL THEN RETURN true; END IF;
    IF p_reason = 'died' THEN
        PERFORM take_lost_leases(v_tenants, v_ids, p_lease_s, CASE WHEN v_child THEN greatest(cardinality(v_ids), p_queries) END);
    ELSE  -- it left in good order, or was asked to: that is nobody's fault
        UPDATE queries q SET lease_owner = NULL, lease_expires_at = NULL,
               worked_ms = q.worked_ms + extract(epoch FROM clock_timestamp() - q.resumed_at) * 1000
          FROM unnest(v_tenants, v_ids) AS a(tenant, id) WHERE q.tenant_id = a.tenant AND q.id = a.id;
    END IF;
    PERFORM pg_notify('plangate_wake', '');
    RETURN true;
END $$;
ALTER FUNCTION end_process OWNER TO plangate_scan;
REVOKE ALL ON FUNCTION end_process FROM PUBLIC;
GRANT EXECUTE ON FUNCTION end_process TO plangate_app;
