-- Create a key of the operator.
CREATE OR REPLACE FUNCTION create_operator_key(p_id text, p_hash bytea, p_by text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS $$
    INSERT INTO api_keys (tenant_id, id, hash, principal, scopes, created_by)
    VALUES ('*', p_id, p_hash, 'operator', '{admin}', p_by)
$$;
REVOKE ALL ON FUNCTION create_operator_key FROM PUBLIC;  -- only the owner of the database
