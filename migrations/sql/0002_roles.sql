DO $$
DECLARE t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['blobs', 'workspaces', 'workspace_versions', 'workspace_files', 'artifact_chains', 'artifacts',
        'artifact_tags', 'artifact_parents', 'artifact_uses', 'artifact_tombstones'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', t);
        EXECUTE format('CREATE POLICY of_tenant ON %I TO plangate_app '
            'USING (tenant_id = nullif(current_setting(''plangate.tenant'', true), ''*'')) '
            'WITH CHECK (tenant_id = nullif(current_setting(''plangate.tenant'', true), ''*''))', t);
        EXECUTE format('GRANT SELECT, INSERT ON %I TO plangate_app', t);
    END LOOP;
    FOREACH t IN ARRAY ARRAY['blobs', 'artifact_chains', 'artifacts', 'artifact_tags', 'artifact_parents',
        'artifact_tombstones'] LOOP
        EXECUTE format('CREATE POLICY of_scan ON %I TO plangate_scan USING (true) WITH CHECK (true)', t);
        EXECUTE format('GRANT SELECT ON %I TO plangate_scan', t);
    END LOOP;
END $$;
GRANT UPDATE (named, used_at), DELETE ON blobs TO plangate_app;
GRANT UPDATE (blob_bytes) ON tenants TO plangate_app;
REVOKE INSERT ON artifact_tombstones FROM plangate_app;  -- forget_artifacts makes them
GRANT UPDATE (n, mac) ON artifact_chains TO plangate_app;
GRANT DELETE ON artifact_chains, artifacts, artifact_tags, artifact_parents TO plangate_scan;
GRANT UPDATE ON artifact_chains TO plangate_scan;  -- to lock them
GRANT INSERT ON artifact_tombstones TO plangate_scan;
GRANT UPDATE (files, bytes) ON workspaces TO plangate_app;
GRANT UPDATE (version, deleted) ON workspace_files TO plangate_app;

-- Threads that are deleted, with their queries and plans: nobody but the functions that remove them.
DO $$
DECLARE t text;
BEGIN
    FOREACH t IN ARRAY ARRAY['threads', 'queries', 'plans'] LOOP
        EXECUTE format('CREATE POLICY not_deleted ON %I AS RESTRICTIVE TO plangate_app USING (NOT deleted)', t);
    END LOOP;
    FOREACH t IN ARRAY ARRAY['threads', 'plans', 'plan_revisions', 'plan_transitions', 'plan_actions', 'plan_snapshots',
        'documents', 'document_writes', 'call_variables', 'workspaces', 'workspace_versions', 'workspace_files'] LOOP
        EXECUTE format('CREATE POLICY of_scan ON %I TO plangate_scan USING (true) WITH CHECK (true)', t);
        EXECUTE format('GRANT SELECT, DELETE ON %I TO plangate_scan', t);
    END LOOP;
END $$;
GRANT DELETE ON queries, events, outgoing_calls, reference_pins TO plangate_scan;
GRANT UPDATE ON threads, plans, approvals TO plangate_scan;
GRANT UPDATE (named) ON blobs TO plangate_scan;
