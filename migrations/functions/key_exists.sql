-- Return whether there is a key in force.
CREATE OR REPLACE FUNCTION key_exists() RETURNS boolean LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT EXISTS (SELECT FROM api_keys WHERE revoked_at IS NULL)
$$;
ALTER FUNCTION key_exists OWNER TO plangate_scan;
REVOKE ALL ON FUNCTION key_exists FROM PUBLIC;
GRANT EXECUTE ON FUNCTION key_exists TO plangate_app;
