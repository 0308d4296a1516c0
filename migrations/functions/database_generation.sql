-- Return the generation of the database: a cursor of another cluster or another database belongs to another history.
-- `plangate restore` stores a random number, because a restore into the same database begins another history, too.
CREATE OR REPLACE FUNCTION database_generation() RETURNS text LANGUAGE sql STABLE AS $$
    SELECT substr(md5(s.system_identifier || ':' || d.oid || coalesce((SELECT ':' || g.number FROM generation g), '')), 1, 8)
      FROM pg_control_system() s, pg_database d WHERE d.datname = current_database()
$$;
