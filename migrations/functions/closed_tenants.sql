-- Return the tenants that processes must not work for: they are being moved, were moved, or are being imported.
CREATE OR REPLACE FUNCTION closed_tenants() RETURNS TABLE (tenant_id text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT t.tenant_id FROM tenants t WHERE t.state <> 'active'
$$;
ALTER FUNCTION closed_tenants OWNER TO plangate_scan;
REVOKE ALL ON FUNCTION closed_tenants FROM PUBLIC;
GRANT EXECUTE ON FUNCTION closed_tenants TO plangate_app;
