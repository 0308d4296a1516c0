-- Change the limits and the approval floor of a tenant. NULL leaves a value as it is. False: there is no such tenant.
CREATE OR REPLACE FUNCTION set_tenant(p_tenant text, p_limits jsonb, p_floor jsonb) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    UPDATE tenants SET limits = coalesce(p_limits, limits), approval_floor = coalesce(p_floor, approval_floor)
     WHERE tenant_id = p_tenant;
    RETURN FOUND;
END $$;
REVOKE ALL ON FUNCTION set_tenant FROM PUBLIC;  -- only the owner of the database
