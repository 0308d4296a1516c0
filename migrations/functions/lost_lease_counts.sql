-- Return what its lost leases say about a query.
-- doubts: owners that shared their process with other queries and have not reported since, whether dead or not.
-- deaths: those of them that are dead. Both start again with progress (p_progress).
-- own_deaths: child processes that died while they ran only this query.
-- share: how many queries a child may run together with this one, after a child with several queries died; NULL: any number.
CREATE OR REPLACE FUNCTION lost_lease_counts(p_tenant text, p_query text, p_upto int, p_progress bigint)
RETURNS TABLE (doubts int, deaths int, own_deaths int, share int) LANGUAGE sql STABLE AS $$
    SELECT count(*) FILTER (WHERE p.parent_id IS NULL AND l.epoch >= p_progress)::int,
           count(*) FILTER (WHERE p.parent_id IS NULL AND l.epoch >= p_progress
                              AND p.end_reason IN ('died', 'presumed_dead'))::int,
           count(*) FILTER (WHERE l.queries = 1 AND p.end_reason = 'died')::int,
           (min(l.queries) FILTER (WHERE p.end_reason = 'died') + 1) / 2
      FROM lost_leases l LEFT JOIN processes p ON p.id = l.process_id
     WHERE l.tenant_id = p_tenant AND l.query_id = p_query AND l.n <= p_upto
$$;
