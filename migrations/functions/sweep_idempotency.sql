-- Remove responses that are kept for 24 hours, at most p_limit of them. Return how many were removed.
CREATE OR REPLACE FUNCTION sweep_idempotency(p_limit int) RETURNS int
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE n int;
BEGIN
    DELETE FROM idempotency WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM idempotency WHERE created_at < now() - interval '24 hours' LIMIT p_limit));
    GET DIAGNOSTICS n = ROW_COUNT;
    RETURN n;
END $$;
ALTER FUNCTION sweep_idempotency OWNER TO plangate_scan;
REVOKE ALL ON FUNCTION sweep_idempotency FROM PUBLIC;
GRANT EXECUTE ON FUNCTION sweep_idempotency TO plangate_app;
