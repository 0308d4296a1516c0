-- Return whether work may continue: false after a promotion that may have lost commits, until `plangate recover`. Raise
-- cannot_connect_now while no process has entered the timeline of a promotion: callers try again.
CREATE OR REPLACE FUNCTION may_dispatch() RETURNS boolean LANGUAGE plpgsql STABLE AS $$
DECLARE r record;
BEGIN
    SELECT timeline, needs_recovery INTO r FROM replication;
    IF NOT FOUND THEN RETURN true; END IF;
    IF r.timeline <> database_timeline() THEN
        RAISE EXCEPTION 'The database was promoted; try again' USING ERRCODE = 'cannot_connect_now';
    END IF;
    RETURN NOT r.needs_recovery;
END $$;
