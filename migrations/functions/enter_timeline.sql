-- Record the timeline of the cluster and whether its commits wait for a standby. The first call after a promotion decides
-- whether it may have lost commits: it has not if p_lossless, and commits waited for a standby before it. Return whether
-- `plangate recover` is needed.
CREATE OR REPLACE FUNCTION enter_timeline(p_lossless boolean) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
    v_timeline text := database_timeline();
    v_synchronous boolean := current_setting('synchronous_standby_names') <> ''
        AND current_setting('synchronous_commit') IN ('on', 'remote_apply');
    r record;
BEGIN
    SELECT * INTO r FROM replication;
    IF NOT FOUND THEN
        INSERT INTO replication (timeline, synchronous) VALUES (v_timeline, v_synchronous) ON CONFLICT DO NOTHING;
    ELSIF r.timeline <> v_timeline OR r.synchronous <> v_synchronous THEN
        UPDATE replication SET timeline = v_timeline, synchronous = v_synchronous,
               needs_recovery = needs_recovery OR (timeline <> v_timeline AND NOT (p_lossless AND synchronous));
    END IF;
    RETURN (SELECT needs_recovery FROM replication);
END $$;
ALTER FUNCTION enter_timeline OWNER TO plangate_scan;
REVOKE ALL ON FUNCTION enter_timeline FROM PUBLIC;
GRANT EXECUTE ON FUNCTION enter_timeline TO plangate_app;
