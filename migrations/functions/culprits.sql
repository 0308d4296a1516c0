-- Return queries that nobody works on and for which p_fatal processes died, at least one of them while it ran nothing
-- else.
CREATE OR REPLACE FUNCTION culprits(p_fatal int) RETURNS TABLE (tenant_id text, id text, epoch bigint, deaths int, own_deaths int)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT q.tenant_id, q.id, q.lease_epoch, c.deaths, c.own_deaths FROM queries q
      CROSS JOIN LATERAL lost_lease_counts(q.tenant_id, q.id, q.crashes, q.progress_epoch) c
     WHERE q.status = 'running' AND q.ending_code IS NULL AND q.lease_expires_at IS NULL AND q.crashes > 0
       AND c.own_deaths > 0 AND c.deaths + c.own_deaths >= p_fatal
$$;
ALTER FUNCTION culprits OWNER TO plangate_scan;
REVOKE ALL ON FUNCTION culprits FROM PUBLIC;
GRANT EXECUTE ON FUNCTION culprits TO plangate_app;
