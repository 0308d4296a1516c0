-- Return the processes that hold a lock file, as far as the database knows.
CREATE OR REPLACE FUNCTION locked_processes() RETURNS TABLE (id text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT p.id FROM processes p WHERE p.ended_at IS NULL AND p.holds_lock
$$;
ALTER FUNCTION locked_processes OWNER TO plangate_scan;
REVOKE ALL ON FUNCTION locked_processes FROM PUBLIC;
GRANT EXECUTE ON FUNCTION locked_processes TO plangate_app;
