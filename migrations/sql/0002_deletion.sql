-- The end of threads. In the lock order: thread, queries, plans, approvals.

-- Begins it: nobody sees the thread, its newest p_most queries and its plans any more, its key is free, and approvals
-- keep who decided what, and when, and the digest of what it was about. Outcomes: no_thread; busy, with the queries that
-- are not over; deleted. Who writes to a thread holds its row, so that he comes before this or finds no thread.
CREATE FUNCTION forget_thread(p_thread text, p_most int) RETURNS TABLE (outcome text, queries text[])
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
#variable_conflict use_column
DECLARE v_tenant text := current_setting('plangate.tenant'); v_busy text[]; v_ids text[];
BEGIN
    PERFORM FROM threads t WHERE t.tenant_id = v_tenant AND t.id = p_thread AND NOT t.deleted FOR UPDATE;
    IF NOT FOUND THEN RETURN QUERY SELECT 'no_thread', NULL::text[]; RETURN; END IF;
    SELECT array_agg(q.id ORDER BY q.id) INTO v_busy FROM queries q
     WHERE q.tenant_id = v_tenant AND q.thread_id = p_thread AND q.status IN ('queued', 'running', 'waiting');
    IF v_busy IS NOT NULL THEN RETURN QUERY SELECT 'busy', v_busy; RETURN; END IF;
    UPDATE threads t SET deleted = true, key = NULL WHERE t.tenant_id = v_tenant AND t.id = p_thread;
    v_ids := ARRAY(SELECT q.id FROM queries q WHERE q.tenant_id = v_tenant AND q.thread_id = p_thread
                    ORDER BY q.id DESC LIMIT p_most);
    PERFORM FROM queries q WHERE q.tenant_id = v_tenant AND q.id = ANY (v_ids) ORDER BY q.id FOR UPDATE;
    UPDATE queries q SET deleted = true WHERE q.tenant_id = v_tenant AND q.id = ANY (v_ids);
    PERFORM FROM plans p WHERE p.tenant_id = v_tenant AND p.thread_id = p_thread ORDER BY p.id FOR UPDATE;
    UPDATE plans p SET deleted = true WHERE p.tenant_id = v_tenant AND p.thread_id = p_thread;
    PERFORM empty_approvals(v_ids);
    RETURN QUERY SELECT 'deleted', NULL::text[];
END $$;

-- Removes rows of a thread that is deleted, about as many as it may, its oldest queries first, and says whether there is
-- nothing left to do: none is left, or somebody else is at it. What was used is added up from work records, so these stay,
-- without what went in and came out.
CREATE FUNCTION forget_rest(p_thread text, p_rows int) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_tenant text := current_setting('plangate.tenant'); v_left int := p_rows; v_ids text[]; v_n int; v_digests bytea[];
    v_batch int := least(p_rows, 100);
BEGIN
    PERFORM FROM threads WHERE tenant_id = v_tenant AND id = p_thread AND deleted FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN RETURN true; END IF;
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

-- What the approvals of these queries were about goes. Those that are empty already are left alone.
CREATE FUNCTION empty_approvals(p_queries text[]) RETURNS void LANGUAGE sql AS $$
    UPDATE approvals SET subject = NULL, original_subject = NULL, glimpses = '{}', feedback = NULL, partial = NULL
     WHERE tenant_id = current_setting('plangate.tenant') AND query_id = ANY (p_queries) AND subject IS NOT NULL
$$;

-- Deletes at most p_rows rows that belong to one of these; gives how many more could be.
CREATE FUNCTION forget_rows(p_table text, p_column text, p_ids text[], p_rows int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE v_left int := p_rows; v_n int;
BEGIN
    WHILE v_left > 0 LOOP
        EXECUTE format('DELETE FROM %1$I WHERE ctid = ANY (ARRAY(SELECT ctid FROM %1$I '
                       'WHERE tenant_id = $1 AND %2$I = ANY ($2) LIMIT $3))', p_table, p_column)
          USING current_setting('plangate.tenant'), p_ids, v_left;
        GET DIAGNOSTICS v_n = ROW_COUNT;
        EXIT WHEN v_n = 0;  -- only then: one that somebody wrote to meanwhile is another row now
        v_left := v_left - v_n;
    END LOOP;
    RETURN v_left;
END $$;

-- Rows that named these bodies went: what no other row names may be collected. One that somebody is about to name is
-- not: the collector looks again, under the row's lock.
CREATE FUNCTION let_go_of_blobs(p_digests bytea[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_tenant text := current_setting('plangate.tenant');
BEGIN
    PERFORM FROM blobs WHERE tenant_id = v_tenant AND digest = ANY (p_digests) ORDER BY digest FOR NO KEY UPDATE;
    UPDATE blobs b SET named = false WHERE b.tenant_id = v_tenant AND b.digest = ANY (p_digests) AND b.named
       AND NOT EXISTS (SELECT FROM workspace_versions v WHERE v.tenant_id = v_tenant AND v.digest = b.digest)
       AND NOT EXISTS (SELECT FROM artifacts a WHERE a.tenant_id = v_tenant AND a.digest = b.digest);
END $$;

-- Threads that are deleted and of which rows are left.
CREATE FUNCTION due_deletions(p_limit int) RETURNS TABLE (tenant_id text, id text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT t.tenant_id, t.id FROM threads t WHERE t.deleted ORDER BY t.id LIMIT p_limit
$$;

-- As it was, but for queries that are deleted: who follows one is told that it is gone.
CREATE OR REPLACE FUNCTION query_heads(p_ids text[])
RETURNS TABLE (id text, next_seq bigint, wake bigint, epoch bigint, live boolean)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT q.id, q.next_seq, q.wake, q.lease_epoch, q.status IN ('queued', 'running', 'waiting')
      FROM queries q WHERE q.id = ANY (p_ids) AND NOT q.deleted
$$;

GRANT CREATE ON SCHEMA public TO plangate_scan;  -- needed to become the owner of a function, taken back below
DO $$
DECLARE f regprocedure;
BEGIN
    FOR f IN SELECT p.oid FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace
              AND p.proname IN ('forget_thread', 'forget_rest', 'due_deletions', 'forget_rows', 'empty_approvals',
                                'let_go_of_blobs') LOOP
        EXECUTE format('ALTER FUNCTION %s OWNER TO plangate_scan; REVOKE ALL ON FUNCTION %s FROM PUBLIC', f, f);
    END LOOP;
END $$;
GRANT EXECUTE ON FUNCTION forget_thread, forget_rest, due_deletions TO plangate_app;
REVOKE CREATE ON SCHEMA public FROM plangate_scan;
