-- Return what waits in the whole installation, for its operator: numbers only, each read from a partial index.
CREATE OR REPLACE FUNCTION operator_counts() RETURNS TABLE (name text, label text, value float8)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT 'queries', 'queued', count(*)::float8 FROM queries WHERE status = 'queued'
    UNION ALL SELECT 'queries', 'running', count(*) FROM queries WHERE status = 'running'
    UNION ALL SELECT 'queries_overdue', '', count(*) FROM queries
               WHERE status = 'running' AND lease_expires_at < clock_timestamp()
    UNION ALL SELECT 'queries_waiting', coalesce(reason, 'none'), count(*) FROM queries WHERE status = 'waiting' GROUP BY reason
    UNION ALL (SELECT 'queue_oldest_seconds', '', extract(epoch FROM clock_timestamp() - created_at) FROM queries
                WHERE status = 'queued' ORDER BY id LIMIT 1)
    UNION ALL SELECT 'approvals_pending', '', count(*) FROM approvals WHERE status = 'pending'
    UNION ALL SELECT 'approvals_oldest_seconds', '', extract(epoch FROM clock_timestamp() - min(requested_at)) FROM approvals
               WHERE status = 'pending' HAVING count(*) > 0
    UNION ALL SELECT 'client_calls', 'open', count(*) FROM outgoing_calls WHERE status = 'open' AND sender = 'client'
    UNION ALL SELECT 'client_calls_oldest_seconds', '', extract(epoch FROM clock_timestamp() - min(created_at))
                FROM outgoing_calls WHERE status = 'open' AND sender = 'client' HAVING count(*) > 0
    UNION ALL SELECT 'client_calls', 'claimed', count(*) FROM outgoing_calls WHERE status = 'claimed' AND sender = 'client'
$$;
ALTER FUNCTION operator_counts OWNER TO plangate_scan;
REVOKE ALL ON FUNCTION operator_counts FROM PUBLIC;
GRANT EXECUTE ON FUNCTION operator_counts TO plangate_app;
