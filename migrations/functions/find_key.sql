-- Return the key with this hash, of whichever tenant: the tenant of a caller is not known before.
CREATE OR REPLACE FUNCTION find_key(p_hash bytea) RETURNS TABLE (id text, tenant_id text, principal text, scopes text[], tools text[], expires_at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT k.id, k.tenant_id, k.principal, k.scopes, k.tools, k.expires_at FROM api_keys k
     WHERE k.hash = p_hash AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now())
$$;
ALTER FUNCTION find_key OWNER TO plangate_scan;
REVOKE ALL ON FUNCTION find_key FROM PUBLIC;
GRANT EXECUTE ON FUNCTION find_key TO plangate_app;
