-- Row-level security of every table with a tenant. A transaction names its tenant; '*' stands for the operator, who has
-- no rows. What plangate_scan may see is in of_scan. There is one permissive policy for each role and table.
DO $$
DECLARE t text; visible text;
BEGIN
    FOR t IN SELECT c.table_name FROM information_schema.columns c JOIN information_schema.tables USING (table_schema, table_name)
              WHERE c.table_schema = 'public' AND c.column_name = 'tenant_id' AND table_type = 'BASE TABLE' LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', t);
        EXECUTE format('DROP POLICY IF EXISTS of_tenant ON %I', t);
        -- Only the functions that remove deleted threads see these, with their queries and plans.
        visible := 'tenant_id = nullif(current_setting(''plangate.tenant'', true), ''*'')'
            || CASE WHEN t IN ('threads', 'queries', 'plans') THEN ' AND NOT deleted' ELSE '' END;
        EXECUTE format('CREATE POLICY of_tenant ON %I TO plangate_app USING (%s) WITH CHECK (%s)', t, visible, visible);
    END LOOP;
    FOREACH t IN ARRAY ARRAY['tenants', 'api_keys', 'sessions', 'idempotency', 'threads', 'queries', 'lost_leases', 'work_records', 'events',
        'approvals', 'approval_comments', 'plans', 'plan_revisions', 'plan_transitions', 'plan_snapshots', 'plan_actions', 'reference_values',
        'reference_pins', 'outgoing_calls', 'documents', 'document_writes', 'call_variables', 'blobs', 'workspaces',
        'workspace_versions', 'workspace_files', 'artifact_chains', 'artifacts', 'artifact_tags', 'artifact_parents',
        'artifact_decisions', 'artifact_choices', 'artifact_tombstones',
        'source_statements'] LOOP
        EXECUTE format('DROP POLICY IF EXISTS of_scan ON %I', t);
        EXECUTE format('CREATE POLICY of_scan ON %I TO plangate_scan USING (true) WITH CHECK (true)', t);
    END LOOP;
END $$;
