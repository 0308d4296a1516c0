-- Record a heartbeat. The clock of writable time advances; the leases that the process lost meanwhile say nothing about
-- their queries; its leases are renewed; and leases that it does not know of, because the response to its claim was lost,
-- are released. Return the ids of the queries that it still holds. p_lease_s is NULL for a process that runs no queries.
-- p_closing: the closed tenants whose queries the process is still stopping.
CREATE OR REPLACE FUNCTION report_process(p_id text, p_tenants text[], p_ids text[], p_epochs bigint[], p_lease_s float8,
                                          p_closing text[])
RETURNS TABLE (id text) LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
#variable_conflict use_column
BEGIN
    UPDATE writable_time SET ticked_at = clock_timestamp(), elapsed_ms = elapsed_ms
           + least(extract(epoch FROM clock_timestamp() - ticked_at) * 1000, 5000)::bigint
     WHERE only_row = (SELECT only_row FROM writable_time WHERE ticked_at < clock_timestamp() - interval '0.9 s'
                          FOR UPDATE SKIP LOCKED);
    UPDATE processes p SET heartbeat_at = clock_timestamp(), heartbeat_ms = (SELECT elapsed_ms FROM writable_time),
           ended_at = NULL, end_reason = NULL, closing = p_closing
     WHERE p.id = p_id;
    DELETE FROM lost_leases l WHERE l.process_id = p_id;
    IF p_lease_s IS NULL THEN RETURN; END IF;
    UPDATE queries q SET lease_owner = NULL, lease_expires_at = NULL
      FROM (SELECT o.tenant_id, o.id FROM queries o
             WHERE o.status = 'running' AND o.lease_owner = p_id AND o.resumed_at < clock_timestamp() - interval '5 s'
               AND NOT EXISTS (SELECT FROM unnest(p_tenants, p_ids, p_epochs) AS h(tenant, id, epoch)
                                WHERE h.tenant = o.tenant_id AND h.id = o.id AND h.epoch = o.lease_epoch)
             ORDER BY o.id FOR NO KEY UPDATE SKIP LOCKED) unknown
     WHERE q.tenant_id = unknown.tenant_id AND q.id = unknown.id;
    IF FOUND THEN PERFORM pg_notify('plangate_wake', ''); END IF;
    RETURN QUERY
    UPDATE queries q SET lease_expires_at = clock_timestamp() + make_interval(secs => p_lease_s)
      FROM (SELECT r.tenant_id, r.id FROM queries r
              JOIN unnest(p_tenants, p_ids, p_epochs) AS h(tenant, id, epoch) ON r.tenant_id = h.tenant AND r.id = h.id
             WHERE r.lease_epoch = h.epoch AND r.status = 'running' AND r.lease_owner = p_id
             ORDER BY r.id FOR NO KEY UPDATE OF r) held
     WHERE q.tenant_id = held.tenant_id AND q.id = held.id
    RETURNING q.id;
END $$;
ALTER FUNCTION report_process OWNER TO plangate_scan;
REVOKE ALL ON FUNCTION report_process FROM PUBLIC;
GRANT EXECUTE ON FUNCTION report_process TO plangate_app;
