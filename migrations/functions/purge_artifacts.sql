-- Remove artifact records of a deleted thread, about p_rows rows with their tags, parents and decisions, the newest first;
-- the chain goes with its last record. Nothing is removed before the tombstone is written. Return how many more rows could
-- have been removed.
CREATE OR REPLACE FUNCTION purge_artifacts(p_thread text, p_rows int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    v_tenant text := current_setting('plangate.tenant'); v_left int := p_rows; v_ids text[]; v_gone bytea[]; v_digests bytea[];
BEGIN
    PERFORM FROM artifact_tombstones WHERE tenant_id = v_tenant AND thread_id = p_thread;
    IF NOT FOUND THEN RETURN p_rows; END IF;
    WHILE v_left > 0 LOOP
        v_ids := ARRAY(SELECT id FROM artifacts WHERE tenant_id = v_tenant AND thread_id = p_thread
                        ORDER BY n DESC LIMIT least(v_left, 100));
        IF cardinality(v_ids) = 0 THEN
            DELETE FROM artifact_chains WHERE tenant_id = v_tenant AND thread_id = p_thread;
            EXIT;
        END IF;
        v_left := purge_rows('artifact_tags', 'artifact_id', v_ids, v_left);
        v_left := purge_rows('artifact_parents', 'artifact_id', v_ids, v_left);
        v_left := purge_rows('artifact_choices', 'decision_id', ARRAY(SELECT id FROM artifact_decisions
                              WHERE tenant_id = v_tenant AND artifact_id = ANY (v_ids)), v_left);
        v_left := purge_rows('artifact_decisions', 'artifact_id', v_ids, v_left);
        EXIT WHEN v_left <= 0;
        WITH gone AS (DELETE FROM artifacts WHERE tenant_id = v_tenant AND id = ANY (v_ids) RETURNING digest)
        SELECT array_agg(DISTINCT digest) INTO v_gone FROM gone;
        v_digests := v_digests || v_gone;
        v_left := v_left - cardinality(v_ids);
    END LOOP;
    -- Those of files go with the files: to lock them now, and others later, would be against the order of digests.
    PERFORM release_blobs(ARRAY(SELECT DISTINCT g FROM unnest(v_digests) AS g WHERE NOT EXISTS (
        SELECT FROM workspace_versions v WHERE v.tenant_id = v_tenant AND v.thread_id = p_thread AND v.digest = g)));
    RETURN v_left;
END $$;
ALTER FUNCTION purge_artifacts OWNER TO plangate_scan;
REVOKE ALL ON FUNCTION purge_artifacts FROM PUBLIC;
