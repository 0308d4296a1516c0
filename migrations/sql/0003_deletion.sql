-- Records of artifacts go in slices with the other rows of a thread that is deleted, however many there are.

-- Removes records of a thread that is deleted, with tags and parents about as many rows as it may, the newest first; with the
-- last one goes the chain. None without a tombstone. Gives how many rows more could be.
CREATE FUNCTION forget_records(p_thread text, p_rows int) RETURNS int LANGUAGE plpgsql AS $$
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
        v_left := forget_rows('artifact_tags', 'artifact_id', v_ids, v_left);
        v_left := forget_rows('artifact_parents', 'artifact_id', v_ids, v_left);
        EXIT WHEN v_left <= 0;
        WITH gone AS (DELETE FROM artifacts WHERE tenant_id = v_tenant AND id = ANY (v_ids) RETURNING digest)
        SELECT array_agg(DISTINCT digest) INTO v_gone FROM gone;
        v_digests := v_digests || v_gone;
        v_left := v_left - cardinality(v_ids);
    END LOOP;
    -- Those of files go with the files: to lock them now, and others later, would be against the order of digests.
    PERFORM let_go_of_blobs(ARRAY(SELECT DISTINCT g FROM unnest(v_digests) AS g WHERE NOT EXISTS (
        SELECT FROM workspace_versions v WHERE v.tenant_id = v_tenant AND v.thread_id = p_thread AND v.digest = g)));
    RETURN v_left;
END $$;

-- The one way in which records of artifacts go: with their whole thread. What stays is where their chain ended, under a
-- seal of the service's. The newest of them go at once, the others with the rest of the thread. False: the thread is not
-- deleted, has no chain, or one that ended elsewhere than the seal says.
CREATE OR REPLACE FUNCTION forget_artifacts(p_thread text, p_n bigint, p_mac bytea, p_seal bytea) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE v_tenant text := current_setting('plangate.tenant');
BEGIN
    PERFORM FROM artifact_chains c JOIN threads t ON t.tenant_id = v_tenant AND t.id = p_thread AND t.deleted
      WHERE c.tenant_id = v_tenant AND c.thread_id = p_thread AND c.n = p_n AND c.mac = p_mac FOR UPDATE OF c;
    IF NOT FOUND THEN RETURN false; END IF;
    INSERT INTO artifact_tombstones (tenant_id, thread_id, n, mac, seal) VALUES (v_tenant, p_thread, p_n, p_mac, p_seal);
    PERFORM forget_records(p_thread, 30000);
    RETURN true;
END $$;

-- As it was, but that records of artifacts go too, as the first: until they have gone they can be read.
CREATE OR REPLACE FUNCTION forget_rest(p_thread text, p_rows int) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_tenant text := current_setting('plangate.tenant'); v_left int := p_rows; v_ids text[]; v_n int; v_digests bytea[];
    v_batch int := least(p_rows, 100);
BEGIN
    PERFORM FROM threads WHERE tenant_id = v_tenant AND id = p_thread AND deleted FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN RETURN true; END IF;
    v_left := forget_records(p_thread, v_left);
    LOOP
        IF v_left <= 0 THEN RETURN false; END IF;
        v_ids := ARRAY(SELECT id FROM queries WHERE tenant_id = v_tenant AND thread_id = p_thread
                        ORDER BY id LIMIT v_batch);
        EXIT WHEN cardinality(v_ids) = 0;
        PERFORM empty_approvals(v_ids);
        UPDATE work_records SET input = NULL, output = NULL, error = NULL
         WHERE tenant_id = v_tenant AND id = ANY (ARRAY(
               SELECT id FROM work_records WHERE tenant_id = v_tenant AND query_id = ANY (v_ids)
                  AND (input IS NOT NULL OR output IS NOT NULL OR error IS NOT NULL) LIMIT v_left));
        GET DIAGNOSTICS v_n = ROW_COUNT;
        v_left := forget_rows('events', 'query_id', v_ids, v_left - v_n);
        v_left := forget_rows('call_variables', 'query_id', v_ids, v_left);
        v_left := forget_rows('outgoing_calls', 'query_id', v_ids, v_left);
        IF v_left <= 0 THEN RETURN false; END IF;
        v_left := forget_rows('plan_snapshots', 'work_id', ARRAY(
            SELECT s.work_id FROM work_records w JOIN plan_snapshots s ON s.tenant_id = v_tenant AND s.work_id = w.id
             WHERE w.tenant_id = v_tenant AND w.query_id = ANY (v_ids)), v_left);
        IF v_left <= 0 THEN RETURN false; END IF;
        DELETE FROM queries WHERE tenant_id = v_tenant AND id = ANY (v_ids);
        v_left := v_left - cardinality(v_ids);
    END LOOP;
    LOOP
        IF v_left <= 0 THEN RETURN false; END IF;
        v_ids := ARRAY(SELECT id FROM plans WHERE tenant_id = v_tenant AND thread_id = p_thread
                        ORDER BY id LIMIT v_batch);
        EXIT WHEN cardinality(v_ids) = 0;
        v_left := forget_rows('plan_actions', 'plan_id', v_ids, v_left);
        v_left := forget_rows('plan_transitions', 'plan_id', v_ids, v_left);
        v_left := forget_rows('plan_revisions', 'plan_id', v_ids, v_left);
        v_left := forget_rows('reference_pins', 'plan_id', v_ids, v_left);
        IF v_left <= 0 THEN RETURN false; END IF;
        DELETE FROM plans WHERE tenant_id = v_tenant AND id = ANY (v_ids);
        v_left := v_left - cardinality(v_ids);
    END LOOP;
    LOOP
        IF v_left <= 0 THEN RETURN false; END IF;
        v_ids := ARRAY(SELECT DISTINCT owner_id FROM documents WHERE tenant_id = v_tenant AND thread_id = p_thread
                        LIMIT v_batch);
        EXIT WHEN cardinality(v_ids) = 0;
        v_left := forget_rows('document_writes', 'owner_id', v_ids, v_left);
        v_left := forget_rows('documents', 'owner_id', v_ids, v_left);
    END LOOP;
    v_left := forget_rows('workspace_files', 'thread_id', ARRAY[p_thread], v_left);
    LOOP
        IF v_left <= 0 THEN RETURN false; END IF;
        WITH gone AS (
            DELETE FROM workspace_versions WHERE ctid = ANY (ARRAY(
                   SELECT ctid FROM workspace_versions WHERE tenant_id = v_tenant AND thread_id = p_thread LIMIT v_left))
            RETURNING digest)
        SELECT count(*), array_agg(DISTINCT digest) INTO v_n, v_digests FROM gone;
        EXIT WHEN v_n = 0;
        PERFORM let_go_of_blobs(v_digests);
        v_left := v_left - v_n;
    END LOOP;
    DELETE FROM workspaces WHERE tenant_id = v_tenant AND thread_id = p_thread;
    DELETE FROM threads WHERE tenant_id = v_tenant AND id = p_thread;
    RETURN true;
END $$;

GRANT CREATE ON SCHEMA public TO plangate_scan;  -- needed to become the owner of a function, taken back below
ALTER FUNCTION forget_records OWNER TO plangate_scan;
REVOKE ALL ON FUNCTION forget_records FROM PUBLIC;
REVOKE CREATE ON SCHEMA public FROM plangate_scan;
