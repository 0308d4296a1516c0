-- Remove rows of a deleted thread, about p_rows of them, its oldest queries first. Return whether nothing is left to do:
-- no row is left, or another process is removing them. Work records stay, without inputs and outputs, because usage is
-- summed from them. Owners of the tables: engine, journal, documents, tools, catalog, plans, references, workspace,
-- queries.
CREATE OR REPLACE FUNCTION purge_thread(p_thread text, p_rows int) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_tenant text := current_setting('plangate.tenant'); v_left int := p_rows; v_ids text[]; v_n int; v_digests bytea[];
    v_step record; v_table text;
BEGIN
    PERFORM FROM threads WHERE tenant_id = v_tenant AND id = p_thread AND deleted FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN RETURN true; END IF;
    v_left := purge_artifacts(p_thread, v_left);
    FOR v_step IN SELECT * FROM (VALUES
        -- The table that knows the thread, its id, and the tables whose rows hold that id, with the column.
        (1, 'queries', 'id', 'query_id', ARRAY['events', 'call_variables', 'outgoing_calls', 'source_statements']),
        (2, 'plans', 'id', 'plan_id', ARRAY['plan_actions', 'plan_transitions', 'plan_revisions']),
        (3, 'documents', 'owner_id', 'owner_id', ARRAY['document_writes'])
    ) AS steps (n, owner, id, key, held) ORDER BY n LOOP
        LOOP
            IF v_left <= 0 THEN RETURN false; END IF;
            EXECUTE format('SELECT ARRAY(SELECT DISTINCT %1$I FROM %2$I WHERE tenant_id = $1 AND thread_id = $2 '
                           'ORDER BY %1$I LIMIT $3)', v_step.id, v_step.owner)
               INTO v_ids USING v_tenant, p_thread, least(p_rows, 100);
            EXIT WHEN cardinality(v_ids) = 0;
            IF v_step.owner = 'queries' THEN
                PERFORM clear_approvals(v_ids);
                UPDATE work_records SET input = NULL, output = NULL, error = NULL
                 WHERE tenant_id = v_tenant AND id = ANY (ARRAY(
                       SELECT id FROM work_records WHERE tenant_id = v_tenant AND query_id = ANY (v_ids)
                          AND (input IS NOT NULL OR output IS NOT NULL OR error IS NOT NULL) LIMIT v_left));
                GET DIAGNOSTICS v_n = ROW_COUNT;
                v_left := purge_rows('plan_snapshots', 'work_id', ARRAY(
                    SELECT s.work_id FROM work_records w JOIN plan_snapshots s ON s.tenant_id = v_tenant AND s.work_id = w.id
                     WHERE w.tenant_id = v_tenant AND w.query_id = ANY (v_ids)), v_left - v_n);
            END IF;
            FOREACH v_table IN ARRAY v_step.held LOOP
                v_left := purge_rows(v_table, v_step.key, v_ids, v_left);
            END LOOP;
            IF v_step.owner IN ('queries', 'plans') THEN
                v_left := purge_rows('reference_pins', 'holder_id', v_ids, v_left);
            END IF;
            v_left := purge_rows(v_step.owner, v_step.id, v_ids, v_left);
        END LOOP;
    END LOOP;
    v_left := purge_rows('workspace_files', 'thread_id', ARRAY[p_thread], v_left);
    LOOP
        IF v_left <= 0 THEN RETURN false; END IF;
        WITH gone AS (
            DELETE FROM workspace_versions WHERE ctid = ANY (ARRAY(
                   SELECT ctid FROM workspace_versions WHERE tenant_id = v_tenant AND thread_id = p_thread LIMIT v_left))
            RETURNING digest)
        SELECT count(*), array_agg(DISTINCT digest) INTO v_n, v_digests FROM gone;
        EXIT WHEN v_n = 0;
        PERFORM release_blobs(v_digests);
        v_left := v_left - v_n;
    END LOOP;
    DELETE FROM workspaces WHERE tenant_id = v_tenant AND thread_id = p_thread;
    DELETE FROM threads WHERE tenant_id = v_tenant AND id = p_thread;
    RETURN true;
END $$;
ALTER FUNCTION purge_thread OWNER TO plangate_scan;
REVOKE ALL ON FUNCTION purge_thread FROM PUBLIC;
GRANT EXECUTE ON FUNCTION purge_thread TO plangate_app;
