-- Let work continue after a promotion, and notify all processes.
CREATE OR REPLACE FUNCTION end_recovery() RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    UPDATE replication SET needs_recovery = false;
    SELECT pg_notify('plangate_wake', '');
$$;
ALTER FUNCTION end_recovery OWNER TO plangate_scan;
REVOKE ALL ON FUNCTION end_recovery FROM PUBLIC;
GRANT EXECUTE ON FUNCTION end_recovery TO plangate_app;
