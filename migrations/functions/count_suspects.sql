-- Return how many queries wait for a child process.
CREATE OR REPLACE FUNCTION count_suspects() RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT count(*) FROM queries q
      CROSS JOIN LATERAL lost_lease_counts(q.tenant_id, q.id, q.crashes, q.progress_epoch) c
     WHERE q.status = 'running' AND q.ending_code IS NULL AND q.lease_expires_at IS NULL AND q.crashes > 0
       AND (q.retry_at IS NULL OR q.retry_at < clock_timestamp()) AND (c.doubts >= 2 OR c.share IS NOT NULL)
$$;
ALTER FUNCTION count_suspects OWNER TO plangate_scan;
REVOKE ALL ON FUNCTION count_suspects FROM PUBLIC;
GRANT EXECUTE ON FUNCTION count_suspects TO plangate_app;
