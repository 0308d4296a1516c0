-- Lock the rows that a process holds, in the order of their ids like a batch of the journal, so that the two never
-- deadlock.
CREATE OR REPLACE FUNCTION held_leases(p_owner text, p_tenants text[], p_ids text[], p_epochs bigint[]) RETURNS TABLE (tenant_id text, id text)
LANGUAGE sql AS $$
    SELECT q.tenant_id, q.id FROM queries q JOIN unnest(p_tenants, p_ids, p_epochs) AS a(tenant, id, epoch) ON q.tenant_id = a.tenant AND q.id = a.id
     WHERE q.lease_epoch = a.epoch AND q.status = 'running' AND q.lease_owner = p_owner
     ORDER BY q.id FOR NO KEY UPDATE OF q
$$;
