-- Take the leases of these queries, whose rows the caller has locked, from owners that fell silent, and record it. The
-- work of such a process counts up to the last renewal of its lease, p_lease_s before its end.
CREATE OR REPLACE FUNCTION take_lost_leases(p_tenants text[], p_ids text[], p_lease_s float8, p_queries int) RETURNS void
LANGUAGE sql AS $$
    WITH lost AS (
        SELECT q.tenant_id, q.id, q.crashes + 1 AS n, q.lease_epoch, coalesce(q.lease_owner, '') AS lease_owner
          FROM queries q JOIN unnest(p_tenants, p_ids) AS a(tenant, id) ON q.tenant_id = a.tenant AND q.id = a.id),
    noted AS (
        INSERT INTO lost_leases AS l (tenant_id, query_id, n, epoch, process_id, queries)
        SELECT tenant_id, id, n, lease_epoch, lease_owner, p_queries FROM lost
        ON CONFLICT (tenant_id, query_id, n) DO UPDATE SET epoch = EXCLUDED.epoch, process_id = EXCLUDED.process_id,
               queries = EXCLUDED.queries, lost_at = EXCLUDED.lost_at)
    UPDATE queries q SET crashes = lost.n, lease_owner = NULL, lease_expires_at = NULL,
           worked_ms = q.worked_ms
               + greatest(0, extract(epoch FROM q.lease_expires_at - q.resumed_at) - p_lease_s) * 1000
      FROM lost WHERE q.tenant_id = lost.tenant_id AND q.id = lost.id
$$;
