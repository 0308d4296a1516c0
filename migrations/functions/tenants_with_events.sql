-- Return which of these tenants, counted from 1, have events of this transaction or a later one. Nothing of the events is
-- returned.
CREATE OR REPLACE FUNCTION tenants_with_events(p_tenants text[], p_xids text[]) RETURNS TABLE (n bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT a.n FROM unnest(p_tenants, p_xids) WITH ORDINALITY AS a(tenant, xid, n)
     WHERE EXISTS (SELECT FROM events e WHERE e.tenant_id = a.tenant AND e.xid >= a.xid::xid8)
$$;
ALTER FUNCTION tenants_with_events OWNER TO plangate_scan;
REVOKE ALL ON FUNCTION tenants_with_events FROM PUBLIC;
GRANT EXECUTE ON FUNCTION tenants_with_events TO plangate_app;
