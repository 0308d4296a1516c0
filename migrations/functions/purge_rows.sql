-- Delete at most p_rows rows that belong to one of these ids. Return how many more could have been deleted.
CREATE OR REPLACE FUNCTION purge_rows(p_table text, p_column text, p_ids text[], p_rows int) RETURNS int LANGUAGE plpgsql AS $$
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
ALTER FUNCTION purge_rows OWNER TO plangate_scan;
REVOKE ALL ON FUNCTION purge_rows FROM PUBLIC;
