-- Record the dispatch of an action that was never sent: its status, its call, which the caller acquires under the epoch of its
-- lease, and its work record. The caller holds the row of the query under that epoch. Return no row if the action was sent
-- before or is over; else the sealed secrets that sign calls of the runtime p_signed_for, or NULLs.
CREATE OR REPLACE FUNCTION dispatch_action(p_plan text, p_index int, p_work text, p_query text, p_thread text, p_parent text,
    p_agent text, p_name text, p_digest text, p_request bytea, p_replay text, p_timeout_ms bigint, p_by text, p_epoch bigint,
    p_signed_for text)
RETURNS TABLE (sealed bytea, previous bytea) LANGUAGE plpgsql AS $$
DECLARE v_tenant text := current_setting('plangate.tenant');
BEGIN
    UPDATE plan_actions SET status = 'dispatched', attempts = 1, work_id = p_work, updated_at = now()
     WHERE tenant_id = v_tenant AND plan_id = p_plan AND index = p_index AND status = 'pending' AND work_id IS NULL;
    IF NOT FOUND THEN RETURN; END IF;
    INSERT INTO outgoing_calls (tenant_id, work_id, query_id, purpose, sender, name, definition_digest, request, replay, status,
           timeout_ms, attempts, epoch, claimed_by)
    VALUES (v_tenant, p_work, p_query, 'action', 'service', p_name, p_digest, p_request, p_replay, 'claimed', p_timeout_ms, 1,
            p_epoch, p_by);
    INSERT INTO work_records (tenant_id, id, query_id, thread_id, parent_id, kind, name, agent, status)
    VALUES (v_tenant, p_work, p_query, p_thread, p_parent, 'action', p_name, p_agent, 'running');
    SELECT s.sealed, CASE WHEN s.previous_until > now() THEN s.previous END INTO sealed, previous FROM signing_secrets s
     WHERE s.tenant_id = v_tenant AND s.runtime_name = p_signed_for;
    RETURN NEXT;
END $$;
