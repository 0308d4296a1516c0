-- Remove the contents of the approvals of these queries, and all comments on them. Empty ones are left alone.
CREATE OR REPLACE FUNCTION clear_approvals(p_queries text[]) RETURNS void LANGUAGE sql AS $$
    DELETE FROM approval_comments WHERE tenant_id = current_setting('plangate.tenant') AND approval_id IN (
        SELECT id FROM approvals
         WHERE tenant_id = current_setting('plangate.tenant') AND query_id = ANY (p_queries));
    UPDATE approvals SET subject = NULL, original_subject = NULL, glimpses = '{}', feedback = NULL, partial = NULL
     WHERE tenant_id = current_setting('plangate.tenant') AND query_id = ANY (p_queries) AND subject IS NOT NULL
$$;
ALTER FUNCTION clear_approvals OWNER TO plangate_scan;
REVOKE ALL ON FUNCTION clear_approvals FROM PUBLIC;
