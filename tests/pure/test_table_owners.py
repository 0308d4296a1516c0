"""Each table has one owner, the package whose statements write it. Statements that write tables of several owners
are listed."""

from __future__ import annotations

from tests.support.statements import functions, named_statements, table_uses

OWNED = {
    "approvals": {"approvals", "approval_comments", "approval_votes", "approval_grants"},
    "artifacts": {
        "artifact_chain_links",
        "artifact_chains",
        "artifact_choices",
        "artifact_decisions",
        "artifact_parents",
        "artifact_tags",
        "artifact_tombstones",
        "artifact_uses",
        "artifacts",
    },
    "base": {"schema_code", "generation"},
    "catalog": {"catalog_entries", "source_statements", "sources"},
    "documents": {"call_variables", "document_writes", "documents"},
    "engine": {"lost_leases", "processes", "queries", "replication", "work_records", "writable_time"},
    "journal": {"events"},
    "plans": {"plan_actions", "plan_revisions", "plan_snapshots", "plan_transitions", "plans"},
    "queries": {"threads"},
    "references": {"reference_pins", "reference_uses", "reference_values"},
    "runtimes": {"runtimes", "signing_secrets"},
    "tenancy": {"api_keys", "idempotency", "installation", "secrets", "sessions", "tenants"},
    "tools": {"outgoing_calls"},
    "usage": {"usage_sums"},
    "workspace": {"blobs", "workspace_files", "workspace_versions", "workspaces"},
}
OWNER = {table: package for package, tables in OWNED.items() for table in tables}

STATEMENTS: dict[str, set[str]] = {
    # The bytes of a body are counted for the tenant in the statement that stores or drops it.
    "app/workspace/store.py:DROP": {"tenancy", "workspace"},
    "app/workspace/store.py:WANT": {"tenancy", "workspace"},
}
FUNCTIONS: dict[str, set[str]] = {
    # submit
    "submit_query": {"engine", "journal", "queries"},
    # commit
    "append_events": {"engine", "journal"},
    "journal_commit": {"engine", "journal"},
    # claim
    "claim_queries": {"engine", "journal"},
    # actions of plans
    "dispatch_action": {"engine", "plans", "tools"},
    "end_action": {"engine", "plans", "tools"},
    # deletion
    "delete_thread": {"engine", "plans", "queries"},
    "purge_thread": {"engine", "queries", "workspace"},  # and the tables in its list
}


def owners(text: str) -> set[str]:
    written = {
        use.table for use in table_uses(text, set(OWNER)) if use.verb in ("UPDATE", "INTO", "DELETE FROM")
    }
    return {OWNER[table] for table in written}


def test_a_package_writes_its_own_tables() -> None:
    foreign = {s.name: owners(s.text) for s in named_statements() if owners(s.text) - {s.name.split("/")[1]}}
    assert foreign == STATEMENTS


def test_functions_that_write_tables_of_several_owners_are_listed() -> None:
    found = {f.name: owners(f.text) for f in functions() if len(owners(f.text)) > 1}
    assert found == FUNCTIONS
