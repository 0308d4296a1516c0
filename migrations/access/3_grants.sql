-- What each role may do with tables. Functions carry their own grants.

-- plangate_app: history is written once; only what has a lifecycle is updated, and almost nothing is deleted.
GRANT SELECT ON alembic_version, generation, tenants, lost_leases, artifact_tombstones, artifact_chain_links TO plangate_app;
GRANT SELECT, INSERT ON api_keys, sessions, secrets, signing_secrets, idempotency, runtimes, threads, queries, work_records, events,
    approvals, approval_votes, approval_comments, approval_grants, plans, plan_revisions, plan_transitions, plan_snapshots, plan_actions,
    reference_values, reference_pins, reference_uses, outgoing_calls, documents, document_writes, call_variables, blobs,
    workspaces, workspace_versions, workspace_files, artifact_chains, artifacts, artifact_tags, artifact_parents,
    artifact_decisions, artifact_choices, artifact_uses TO plangate_app;
GRANT UPDATE ON secrets, signing_secrets, idempotency, runtimes, threads, queries, work_records, approvals, approval_grants,
    plans, plan_revisions, plan_actions, reference_values, reference_pins, reference_uses, outgoing_calls TO plangate_app;
GRANT UPDATE (blob_bytes) ON tenants TO plangate_app;
GRANT UPDATE (revoked_at) ON api_keys TO plangate_app;
GRANT UPDATE (head, body, checkpoint, since_bytes, forgotten, purge_due) ON documents TO plangate_app;
GRANT UPDATE (named, used_at) ON blobs TO plangate_app;
GRANT UPDATE (files, bytes) ON workspaces TO plangate_app;
GRANT UPDATE (version, deleted) ON workspace_files TO plangate_app;
GRANT UPDATE (n, mac) ON artifact_chains TO plangate_app;
GRANT DELETE ON secrets, sessions, idempotency, reference_pins, blobs TO plangate_app;

-- plangate_scan: leases, sweeps and deletion.
GRANT SELECT ON tenants, api_keys, sessions, idempotency, threads, queries, work_records, events, approvals, approval_comments, plans, plan_revisions,
    plan_transitions, plan_snapshots, plan_actions, reference_values, reference_pins, outgoing_calls, documents,
    document_writes, call_variables, blobs, workspaces, workspace_versions, workspace_files, artifact_chains, artifacts,
    artifact_tags, artifact_parents, artifact_decisions, artifact_choices, artifact_tombstones TO plangate_scan;
GRANT SELECT, INSERT, UPDATE, DELETE ON lost_leases, processes TO plangate_scan;
GRANT SELECT, UPDATE ON writable_time TO plangate_scan;
GRANT SELECT, INSERT, UPDATE ON replication TO plangate_scan;
GRANT SELECT ON replication TO plangate_app;
GRANT INSERT ON tenants, events, work_records, artifact_tombstones TO plangate_scan;
GRANT UPDATE ON threads, queries, work_records, approvals, plans, reference_values TO plangate_scan;
GRANT UPDATE ON artifact_chains TO plangate_scan;  -- to lock its rows
GRANT UPDATE (purge_due) ON documents TO plangate_scan;
GRANT UPDATE (named) ON blobs TO plangate_scan;
GRANT DELETE ON sessions, idempotency, threads, queries, events, approval_comments, plans, plan_revisions, plan_transitions, plan_snapshots, plan_actions,
    reference_pins, outgoing_calls, documents, document_writes, call_variables, workspaces, workspace_versions,
    workspace_files, artifact_chains, artifacts, artifact_tags, artifact_parents, artifact_decisions, artifact_choices
    TO plangate_scan;

-- Data sources and the catalog.
GRANT SELECT, INSERT, UPDATE ON sources, catalog_entries, source_statements TO plangate_app;
GRANT DELETE ON sources, catalog_entries TO plangate_app;
GRANT SELECT, DELETE ON source_statements TO plangate_scan;

-- Sums of usage.
GRANT SELECT, INSERT, UPDATE ON usage_sums TO plangate_app;
