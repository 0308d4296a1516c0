-- Presume processes dead that hold no lock and sent no heartbeat for p_silent_ms of writable time. Return how many. Remove
-- records that nobody needs any more.
CREATE OR REPLACE FUNCTION presume_dead(p_silent_ms bigint) RETURNS int
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE n int;
BEGIN
    UPDATE processes p SET ended_at = clock_timestamp(), end_reason = 'presumed_dead'
      FROM writable_time w
     WHERE p.ended_at IS NULL AND NOT p.holds_lock AND w.elapsed_ms - p.heartbeat_ms > p_silent_ms;
    GET DIAGNOSTICS n = ROW_COUNT;
    DELETE FROM lost_leases l USING queries q
     WHERE q.tenant_id = l.tenant_id AND q.id = l.query_id AND (q.ended_at IS NOT NULL OR l.n > q.crashes);
    DELETE FROM processes p WHERE p.ended_at < now() - interval '7 days'
       AND NOT EXISTS (SELECT FROM lost_leases l WHERE l.process_id = p.id);
    RETURN n;
END $$;
ALTER FUNCTION presume_dead OWNER TO plangate_scan;
REVOKE ALL ON FUNCTION presume_dead FROM PUBLIC;
GRANT EXECUTE ON FUNCTION presume_dead TO plangate_app;
