-- Two roles of the cluster that nobody logs in as.
--   plangate_app   what the service is while it works: owns nothing, bypasses nothing
--   plangate_scan  owns the few functions that span tenants; its policies open just the tables they need
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'plangate_app') THEN CREATE ROLE plangate_app NOLOGIN; END IF;
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'plangate_scan') THEN CREATE ROLE plangate_scan NOLOGIN; END IF;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
END $$;
GRANT plangate_app, plangate_scan TO CURRENT_USER;
GRANT SELECT ON alembic_version TO plangate_app;  -- /readyz compares it
GRANT USAGE ON SCHEMA public TO plangate_app, plangate_scan;

DO $$
DECLARE t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['tenants', 'api_keys', 'secrets', 'signing_secrets', 'idempotency', 'runtimes', 'threads', 'queries',
        'work_records', 'events', 'approvals', 'approval_votes', 'approval_grants', 'plans', 'plan_revisions', 'plan_transitions',
        'plan_actions', 'reference_values', 'reference_pins', 'reference_uses', 'outgoing_calls', 'documents',
        'document_writes', 'call_variables', 'plan_snapshots'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', t);
        EXECUTE format('CREATE POLICY of_tenant ON %I TO plangate_app '
            'USING (tenant_id = nullif(current_setting(''plangate.tenant'', true), ''*'')) '  -- '*' is the operator's
            'WITH CHECK (tenant_id = nullif(current_setting(''plangate.tenant'', true), ''*''))', t);
        EXECUTE format('GRANT SELECT, INSERT ON %I TO plangate_app', t);
    END LOOP;
    REVOKE INSERT ON tenants FROM plangate_app;  -- create_tenant makes them
    -- History is written once; only what has a lifecycle may be updated. What a tenant may do is the operator's to change.
    GRANT UPDATE (revoked_at) ON api_keys TO plangate_app;
    FOREACH t IN ARRAY ARRAY['secrets', 'signing_secrets', 'idempotency', 'runtimes', 'threads', 'queries',
        'work_records', 'approvals', 'approval_grants', 'plans', 'plan_revisions', 'plan_actions', 'reference_values',
        'reference_pins', 'reference_uses', 'outgoing_calls'] LOOP
        EXECUTE format('GRANT UPDATE ON %I TO plangate_app', t);
    END LOOP;
    FOREACH t IN ARRAY ARRAY['secrets', 'idempotency', 'reference_pins'] LOOP
        EXECUTE format('GRANT DELETE ON %I TO plangate_app', t);
    END LOOP;
    FOREACH t IN ARRAY ARRAY['queries', 'events', 'work_records', 'tenants', 'api_keys', 'approvals',
        'outgoing_calls', 'reference_values', 'reference_pins', 'idempotency'] LOOP
        EXECUTE format('CREATE POLICY of_scan ON %I TO plangate_scan USING (true) WITH CHECK (true)', t);
        EXECUTE format('GRANT SELECT ON %I TO plangate_scan', t);
    END LOOP;
END $$;
GRANT UPDATE (head, body, checkpoint, since_bytes) ON documents TO plangate_app;
GRANT INSERT ON events, work_records, tenants TO plangate_scan;
GRANT UPDATE ON queries, work_records, reference_values TO plangate_scan;
GRANT DELETE ON idempotency TO plangate_scan;
