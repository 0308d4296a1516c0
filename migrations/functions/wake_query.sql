-- Record that something happened that a query may wait for: increment its wake counter, and set a parked query running
-- again, with its event. Notify the process that runs it, or a free one. False: the query is over.
CREATE OR REPLACE FUNCTION wake_query(p_query text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE v_tenant text := current_setting('plangate.tenant'); q record;
BEGIN
    UPDATE queries SET wake = wake + 1 WHERE tenant_id = v_tenant AND id = p_query AND status IN ('running', 'waiting')
    RETURNING status, thread_id, agent INTO q;
    IF NOT FOUND THEN RETURN false; END IF;
    IF q.status = 'waiting' THEN
        PERFORM append_events(p_query, NULL, ARRAY['query-status'], ARRAY[event_body('query-status', p_query, q.thread_id,
            q.agent, '{"from":"waiting","to":"running"}')]);
        UPDATE queries SET status = 'running', reason = NULL, lease_expires_at = NULL, lease_owner = NULL
         WHERE tenant_id = v_tenant AND id = p_query;
    END IF;
    PERFORM pg_notify('plangate_wake', v_tenant || '/' || p_query);
    RETURN true;
END $$;
