-- Two roles of the cluster that nobody logs in as.
--   plangate_app   the role of the service while it works: owns nothing, bypasses nothing
--   plangate_scan  owns the few functions that span tenants; its policies open only the tables that these need
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'plangate_app') THEN CREATE ROLE plangate_app NOLOGIN; END IF;
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'plangate_scan') THEN CREATE ROLE plangate_scan NOLOGIN; END IF;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
END $$;
GRANT plangate_app, plangate_scan TO CURRENT_USER;
GRANT USAGE ON SCHEMA public TO plangate_app, plangate_scan;
