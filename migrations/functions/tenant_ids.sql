-- Return the ids of all tenants that are here in full, for work that goes through them one by one.
CREATE OR REPLACE FUNCTION tenant_ids() RETURNS TABLE (tenant_id text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT t.tenant_id FROM tenants t WHERE t.state <> 'importing' ORDER BY 1
$$;
ALTER FUNCTION tenant_ids OWNER TO plangate_scan;
REVOKE ALL ON FUNCTION tenant_ids FROM PUBLIC;
GRANT EXECUTE ON FUNCTION tenant_ids TO plangate_app;
