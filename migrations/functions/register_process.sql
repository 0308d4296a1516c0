-- Record that a process has started. Idempotent.
CREATE OR REPLACE FUNCTION register_process(p_id text, p_parent text, p_host text, p_pid int, p_holds_lock boolean) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    INSERT INTO processes (id, parent_id, host, pid, holds_lock, heartbeat_ms)
    SELECT p_id, p_parent, p_host, p_pid, p_holds_lock, elapsed_ms FROM writable_time
    ON CONFLICT DO NOTHING
$$;
ALTER FUNCTION register_process OWNER TO plangate_scan;
REVOKE ALL ON FUNCTION register_process FROM PUBLIC;
GRANT EXECUTE ON FUNCTION register_process TO plangate_app;
