-- Record the outcome of an action that was sent: its status, its call and its work record. If p_call_status is NULL,
-- the call's row is left unchanged: a client process has recorded its result. The caller holds the row of the query under p_epoch.
-- Return false, and change nothing, if the outcome of this call is on record.
CREATE OR REPLACE FUNCTION end_action(p_plan text, p_index int, p_work text, p_status text, p_result bytea, p_error bytea,
    p_work_status text, p_epoch bigint, p_call_status text, p_call_result bytea) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE v_tenant text := current_setting('plangate.tenant');
BEGIN
    UPDATE plan_actions SET status = p_status, result = coalesce(p_result, result), error = p_error, updated_at = now()
     WHERE tenant_id = v_tenant AND plan_id = p_plan AND index = p_index AND status = 'dispatched' AND work_id = p_work;
    IF NOT FOUND THEN RETURN false; END IF;
    IF p_call_status IS NOT NULL THEN  -- a result that is already on record stays as it is
        UPDATE outgoing_calls SET status = p_call_status, result = p_call_result, done_at = now()
         WHERE tenant_id = v_tenant AND work_id = p_work AND sender = 'service' AND status = 'claimed' AND epoch = p_epoch;
    END IF;
    UPDATE work_records SET status = p_work_status, output = p_result, error = p_error, ended_at = clock_timestamp()
     WHERE tenant_id = v_tenant AND id = p_work;
    RETURN true;
END $$;
