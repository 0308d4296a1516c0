-- Return records without a parent that ended so long ago and are not in usage_sums, at most p_limit of them.
CREATE OR REPLACE FUNCTION unsummed_work(p_age interval, p_limit int) RETURNS TABLE (tenant_id text, id text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = public, pg_temp AS $$
    SELECT w.tenant_id, w.id FROM work_records w
     WHERE w.parent_id IS NULL AND NOT w.summed AND w.ended_at < now() - p_age
       AND w.tenant_id <> ALL (ARRAY(SELECT i.tenant_id FROM tenants i WHERE i.state <> 'active'))
     ORDER BY w.tenant_id, w.id LIMIT p_limit
$$;
ALTER FUNCTION unsummed_work OWNER TO plangate_scan;
REVOKE ALL ON FUNCTION unsummed_work FROM PUBLIC;
GRANT EXECUTE ON FUNCTION unsummed_work TO plangate_app;
