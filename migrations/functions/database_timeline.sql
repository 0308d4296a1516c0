-- Return the timeline of the cluster, which each promotion of a standby and each recovery to a point in time changes.
CREATE OR REPLACE FUNCTION database_timeline() RETURNS text LANGUAGE sql STABLE AS $$
    SELECT substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)
$$;
