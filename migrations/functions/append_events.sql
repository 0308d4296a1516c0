-- Append events to a query in the caller's transaction. The row of the query numbers them, so that the order of the
-- numbers is the order of the commits. With p_epoch, the caller must hold the query under it. Return the first number, or
-- NULL if the query is over or no longer held.
CREATE OR REPLACE FUNCTION append_events(p_query text, p_epoch bigint, p_types text[], p_bodies bytea[]) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE first_seq bigint; tenant text;
BEGIN
    UPDATE queries SET next_seq = next_seq + cardinality(p_types)
     WHERE tenant_id = current_setting('plangate.tenant') AND id = p_query
       AND status NOT IN ('succeeded', 'failed', 'cancelled')  -- nothing follows the terminal event
       AND (p_epoch IS NULL OR (lease_epoch = p_epoch AND status = 'running'))
    RETURNING next_seq - cardinality(p_types), tenant_id INTO first_seq, tenant;
    IF first_seq IS NULL THEN RETURN NULL; END IF;
    INSERT INTO events (tenant_id, query_id, seq, type, body)
    SELECT tenant, p_query, first_seq + n - 1, t, b FROM unnest(p_types, p_bodies) WITH ORDINALITY AS e(t, b, n);
    PERFORM notify_journal('', ARRAY[tenant], ARRAY[p_query]);
    RETURN first_seq;
END $$;
