-- A restore into the same database of the same cluster begins another history, too: `plangate restore` stores a random
-- number here. Without one the generation is what it was, so that cursors survive the upgrade. A restored database of
-- an earlier schema has the table already.
CREATE TABLE IF NOT EXISTS generation (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    number bigint NOT NULL
);
GRANT SELECT ON generation TO plangate_app;

CREATE OR REPLACE FUNCTION database_generation() RETURNS text LANGUAGE sql STABLE AS $$
    SELECT substr(md5(s.system_identifier || ':' || c.timeline_id || ':' || d.oid
                      || coalesce((SELECT ':' || g.number FROM generation g), '')), 1, 8)
      FROM pg_control_system() s, pg_control_checkpoint() c, pg_database d WHERE d.datname = current_database()
$$;
