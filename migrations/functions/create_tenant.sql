-- Create a tenant. Only the operator's commands and the operator's key do this. False: it exists already.
CREATE OR REPLACE FUNCTION create_tenant(p_tenant text, p_secret bytea, p_limits jsonb, p_floor jsonb) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO tenants (tenant_id, reference_secret, limits, approval_floor)
    VALUES (p_tenant, p_secret, p_limits, p_floor) ON CONFLICT DO NOTHING;
    RETURN FOUND;
END $$;
ALTER FUNCTION create_tenant OWNER TO plangate_scan;
REVOKE ALL ON FUNCTION create_tenant FROM PUBLIC;
GRANT EXECUTE ON FUNCTION create_tenant TO plangate_app;
