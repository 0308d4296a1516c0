-- Claim queries that are to be ended. Each is claimed again only after p_again_s.
CREATE OR REPLACE FUNCTION claim_endings(p_limit int, p_again_s float8) RETURNS TABLE (tenant_id text, id text)
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    UPDATE queries q SET retry_at = clock_timestamp() + make_interval(secs => p_again_s)
      FROM (SELECT e.tenant_id, e.id FROM queries e
             WHERE e.ending_code IS NOT NULL AND e.ended_at IS NULL
               AND e.tenant_id <> ALL (ARRAY(SELECT i.tenant_id FROM tenants i WHERE i.state <> 'active'))
               AND (e.retry_at IS NULL OR e.retry_at < clock_timestamp())
             ORDER BY e.id LIMIT p_limit FOR NO KEY UPDATE SKIP LOCKED) due
     WHERE q.tenant_id = due.tenant_id AND q.id = due.id
    RETURNING q.tenant_id, q.id
$$;
ALTER FUNCTION claim_endings OWNER TO plangate_scan;
REVOKE ALL ON FUNCTION claim_endings FROM PUBLIC;
GRANT EXECUTE ON FUNCTION claim_endings TO plangate_app;
