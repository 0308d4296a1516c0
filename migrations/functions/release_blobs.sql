-- Release bodies whose rows were removed: those that no other row names may be collected. A body that somebody is
-- about to name is safe: the collector looks again, under a lock on its row.
CREATE OR REPLACE FUNCTION release_blobs(p_digests bytea[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_tenant text := current_setting('plangate.tenant');
BEGIN
    PERFORM FROM blobs WHERE tenant_id = v_tenant AND digest = ANY (p_digests) ORDER BY digest FOR NO KEY UPDATE;
    UPDATE blobs b SET named = false WHERE b.tenant_id = v_tenant AND b.digest = ANY (p_digests) AND b.named
       AND NOT EXISTS (SELECT FROM workspace_versions v WHERE v.tenant_id = v_tenant AND v.digest = b.digest)
       AND NOT EXISTS (SELECT FROM artifacts a WHERE a.tenant_id = v_tenant AND a.digest = b.digest);
END $$;
ALTER FUNCTION release_blobs OWNER TO plangate_scan;
REVOKE ALL ON FUNCTION release_blobs FROM PUBLIC;
