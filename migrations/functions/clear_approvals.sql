-- Remove the contents of the approvals of these queries. Empty ones are left alone.
CREATE OR REPLACE FUNCTION clear_approvals(p_queries text[]) RETURNS void LANGUAGE sql AS $$
    UPDATE approvals SET subject = NULL, original_subject = NULL, glimpses = '{}', feedback = NULL, partial = NULL
     WHERE tenant_id = current_setting('plangate.tenant') AND query_id = ANY (p_queries) AND subject IS NOT NULL
$$;
ALTER FUNCTION clear_approvals OWNER TO plangate_scan;
REVOKE ALL ON FUNCTION clear_approvals FROM PUBLIC;
