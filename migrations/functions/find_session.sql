-- Return the session or ticket with this hash, of whichever tenant, while it and its key are in force.
CREATE OR REPLACE FUNCTION find_session(p_hash bytea) RETURNS TABLE (id text, tenant_id text, principal text, scopes text[],
    tools text[], key_tenant_id text, key_id text, key_expires_at timestamptz, is_ticket boolean, expires_at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT s.id, s.tenant_id, s.principal, s.scopes, s.tools, s.key_tenant_id, s.key_id, k.expires_at, s.is_ticket, s.expires_at
      FROM sessions s JOIN api_keys k ON k.tenant_id = s.key_tenant_id AND k.id = s.key_id
     WHERE s.hash = p_hash AND s.expires_at > now()
       AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > now())
$$;
ALTER FUNCTION find_session OWNER TO plangate_scan;
REVOKE ALL ON FUNCTION find_session FROM PUBLIC;
GRANT EXECUTE ON FUNCTION find_session TO plangate_app;
