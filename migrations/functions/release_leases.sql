-- Release queries that a process gives back as it stops. That says nothing about them.
CREATE OR REPLACE FUNCTION release_leases(p_owner text, p_tenants text[], p_ids text[], p_epochs bigint[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    UPDATE queries q SET lease_expires_at = NULL, lease_owner = NULL,
           worked_ms = q.worked_ms + extract(epoch FROM clock_timestamp() - q.resumed_at) * 1000
      FROM held_leases(p_owner, p_tenants, p_ids, p_epochs) h WHERE q.tenant_id = h.tenant_id AND q.id = h.id;
    IF FOUND THEN PERFORM pg_notify('plangate_wake', ''); END IF;
END $$;
ALTER FUNCTION release_leases OWNER TO plangate_scan;
REVOKE ALL ON FUNCTION release_leases FROM PUBLIC;
GRANT EXECUTE ON FUNCTION release_leases TO plangate_app;
