-- Delete a thread: hide it, its newest p_most queries and its plans, free its key, and remove the contents of its
-- approvals. Who decided what and when stays, with the digest of the subject. Outcomes: no_thread; busy, with the queries
-- that are not over; deleted. Writers lock the row of the thread, so that they commit before the deletion or find no
-- thread. Lock order: thread, queries, plans, approvals.
CREATE OR REPLACE FUNCTION delete_thread(p_thread text, p_most int) RETURNS TABLE (outcome text, queries text[])
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
    PERFORM clear_approvals(v_ids);
    RETURN QUERY SELECT 'deleted', NULL::text[];
END $$;
ALTER FUNCTION delete_thread OWNER TO plangate_scan;
REVOKE ALL ON FUNCTION delete_thread FROM PUBLIC;
GRANT EXECUTE ON FUNCTION delete_thread TO plangate_app;
