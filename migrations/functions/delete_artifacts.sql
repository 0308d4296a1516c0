-- Begin to remove the artifact records of a deleted thread; this is the only way in which records are removed. A
-- tombstone keeps where their chain ended, under a seal of the service. The newest records are removed at once, the
-- others with the rest of the thread. False: the thread is not deleted, has no chain, or a chain that does not end where
-- the seal says.
CREATE OR REPLACE FUNCTION delete_artifacts(p_thread text, p_n bigint, p_mac bytea, p_seal bytea) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE v_tenant text := current_setting('plangate.tenant');
BEGIN
    PERFORM FROM artifact_chains c JOIN threads t ON t.tenant_id = v_tenant AND t.id = p_thread AND t.deleted
      WHERE c.tenant_id = v_tenant AND c.thread_id = p_thread AND c.n = p_n AND c.mac = p_mac FOR UPDATE OF c;
    IF NOT FOUND THEN RETURN false; END IF;
    INSERT INTO artifact_tombstones (tenant_id, thread_id, n, mac, seal) VALUES (v_tenant, p_thread, p_n, p_mac, p_seal);
    PERFORM purge_artifacts(p_thread, 30000);
    RETURN true;
END $$;
ALTER FUNCTION delete_artifacts OWNER TO plangate_scan;
REVOKE ALL ON FUNCTION delete_artifacts FROM PUBLIC;
GRANT EXECUTE ON FUNCTION delete_artifacts TO plangate_app;
