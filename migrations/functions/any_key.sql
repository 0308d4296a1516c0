-- Return whether there is a key in force.
CREATE OR REPLACE FUNCTION any_key() RETURNS boolean LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT EXISTS (SELECT FROM api_keys WHERE revoked_at IS NULL)
$$;
ALTER FUNCTION any_key OWNER TO plangate_scan;
REVOKE ALL ON FUNCTION any_key FROM PUBLIC;
GRANT EXECUTE ON FUNCTION any_key TO plangate_app;
