-- Remove sessions and tickets that have expired, at most p_limit of them. Return how many were removed.
CREATE OR REPLACE FUNCTION sweep_sessions(p_limit int) RETURNS int
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE n int;
BEGIN
    DELETE FROM sessions WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM sessions WHERE expires_at < now() LIMIT p_limit));
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN n;
END $$;
ALTER FUNCTION sweep_sessions OWNER TO plangate_scan;
REVOKE ALL ON FUNCTION sweep_sessions FROM PUBLIC;
GRANT EXECUTE ON FUNCTION sweep_sessions TO plangate_app;
