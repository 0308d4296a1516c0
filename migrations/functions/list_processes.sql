-- Return the processes that live, and those that ended in the last hour, the newest first, with the queries that each runs.
CREATE OR REPLACE FUNCTION list_processes(p_limit int)
RETURNS TABLE (id text, parent_id text, host text, pid int, started_at timestamptz, heartbeat_at timestamptz,
               silent_s float8, ended_at timestamptz, end_reason text, running_queries bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    WITH running AS MATERIALIZED (
        SELECT q.lease_owner, count(*) AS queries FROM queries q WHERE q.status = 'running' GROUP BY q.lease_owner)
    SELECT p.id, p.parent_id, p.host, p.pid, p.started_at, p.heartbeat_at,
           extract(epoch FROM clock_timestamp() - p.heartbeat_at)::float8, p.ended_at, p.end_reason,
           coalesce(running.queries, 0)
      FROM processes p LEFT JOIN running ON running.lease_owner = p.id
     WHERE p.ended_at IS NULL OR p.ended_at > clock_timestamp() - interval '1 hour'
     ORDER BY p.ended_at IS NOT NULL, p.started_at DESC LIMIT p_limit
$$;
ALTER FUNCTION list_processes OWNER TO plangate_scan;
REVOKE ALL ON FUNCTION list_processes FROM PUBLIC;
GRANT EXECUTE ON FUNCTION list_processes TO plangate_app;
