"""Guarantees of the database itself: isolation of tenants, roles without privileges, plans without long scans."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from app.base.postgres.database import SESSION_PARAMETERS, TypeDefinitions, connect_session
from app.deployment import Deployment
from app.documents import store as state_store
from tests.support.world import World

SPANNING = {
    "end_recovery",
    "enter_timeline",
    "unfinished_queries",
    "journal_commit",
    "claim_queries",
    "closed_tenants",
    "claim_endings",
    "count_suspects",
    "culprits",
    "end_process",
    "locked_processes",
    "presume_dead",
    "register_process",
    "report_process",
    "stranded_queries",
    "release_leases",
    "query_heads",
    "find_key",
    "find_session",
    "create_tenant",
    "key_exists",
    "due_approvals",
    "due_limits",
    "due_calls",
    "due_blobs",
    "due_deletions",
    "delete_thread",
    "purge_thread",
    "purge_forgotten_writes",
    "list_tenants",
    "list_processes",
    "tenant_ids",
    "unsummed_work",
    "moved_queries",
    "tenants_with_events",
    "delete_artifacts",
    "operator_counts",
    "sweep_references",
    "sweep_idempotency",
    "sweep_sessions",
}


async def test_every_tenant_table_has_forced_row_level_security(owner: Any) -> None:
    rows = await owner.fetch(
        "SELECT c.relname, c.relrowsecurity, c.relforcerowsecurity, array_agg(p.policyname::text) AS policies"
        " FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant_id'"
        " LEFT JOIN pg_policies p ON p.tablename = c.relname"
        " WHERE c.relkind IN ('r', 'p') AND c.relnamespace = 'public'::regnamespace GROUP BY 1, 2, 3"
    )
    assert len(rows) >= 18
    for row in rows:
        assert row["relrowsecurity"] and row["relforcerowsecurity"], row["relname"]
        assert "of_tenant" in row["policies"], row["relname"]
    without = await owner.fetch(
        "SELECT relname FROM pg_class c WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND NOT EXISTS"
        " (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant_id')"
    )
    cell_wide = {
        "alembic_version",
        "generation",
        "installation",
        "processes",
        "replication",
        "schema_code",
        "writable_time",
    }
    assert {r["relname"] for r in without} == cell_wide
    keys = await owner.fetch(
        "SELECT c.relname, a.attname FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid"
        " JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]"
        " WHERE i.indisprimary AND c.relnamespace = 'public'::regnamespace AND c.relname <> ALL ($1)",
        list(cell_wide),
    )
    assert {r["attname"] for r in keys} == {"tenant_id"}
    unique = await owner.fetch(
        "SELECT i.indexrelid::regclass::text AS name FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid"
        " WHERE i.indisunique AND c.relnamespace = 'public'::regnamespace AND c.relname <> ALL ($1) AND NOT EXISTS"
        " (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum = ANY (i.indkey) AND a.attname = 'tenant_id')",
        list(cell_wide),
    )
    # the directory: a key or a session says whose it is
    assert {r["name"] for r in unique} == {"api_keys_hash_key", "sessions_hash_key"}


async def test_policies_check_the_tenant_on_read_and_write(owner: Any) -> None:
    each = await owner.fetch("SELECT tablename, roles FROM pg_policies GROUP BY 1, 2 HAVING count(*) > 1")
    assert each == []  # one policy for each role and table
    rows = await owner.fetch("SELECT * FROM pg_policies WHERE policyname = 'of_tenant'")
    for row in rows:
        assert row["roles"] == ["plangate_app"]
        assert row["permissive"] == "PERMISSIVE"
        assert "current_setting('plangate.tenant'" in row["qual"] and row["qual"] == row["with_check"]


@pytest.mark.parametrize("role", ["plangate_app", "plangate_scan"])
async def test_the_roles_have_no_extra_privileges(owner: Any, role: str) -> None:
    row = await owner.fetchrow("SELECT * FROM pg_roles WHERE rolname = $1", role)
    for power in (
        "rolsuper",
        "rolbypassrls",
        "rolcreaterole",
        "rolcreatedb",
        "rolcanlogin",
        "rolreplication",
    ):
        assert row[power] is False, power
    owned = await owner.fetchval("SELECT count(*) FROM pg_class WHERE relowner = $1::regrole", row["rolname"])
    assert owned == 0
    assert not await owner.fetchval("SELECT has_schema_privilege($1, 'public', 'CREATE')", role)


async def test_only_listed_functions_span_tenants(owner: Any) -> None:
    rows = await owner.fetch(
        "SELECT p.oid, proname, proowner::regrole::text AS owner, proconfig FROM pg_proc p"
        " WHERE prosecdef AND pronamespace = 'public'::regnamespace"
    )
    assert {r["proname"] for r in rows} == SPANNING | {"create_operator_key"}
    for row in rows:
        assert "search_path=public, pg_temp" in row["proconfig"], row["proname"]
        callable_ = await owner.fetchval(
            "SELECT has_function_privilege('plangate_app', $1::oid, 'EXECUTE')", row["oid"]
        )
        if row["proname"] == "create_operator_key":
            assert not callable_, "the service makes no operator keys"
        else:
            assert (row["owner"], callable_) == ("plangate_scan", True), row["proname"]
            assert not await owner.fetchval(
                "SELECT has_function_privilege('public', $1::oid, 'EXECUTE')", row["oid"]
            )


async def test_the_service_works_as_its_role_and_sees_one_tenant(plangate: World) -> None:
    assert await plangate.value("SELECT current_user::text") == "plangate_app"
    assert await plangate.sql("SELECT tenant_id FROM tenants") == [("acme",)]
    assert await plangate.sql("SELECT tenant_id FROM tenants", tenant="other") == [("other",)]
    async with plangate.services.db.transaction("") as tx:
        assert await tx.fetch("SELECT tenant_id FROM tenants") == []


async def test_a_pooled_connection_does_not_keep_its_tenant(plangate: World) -> None:
    for _ in range(10):
        await plangate.value("SELECT 1")
        (row,) = await plangate.services.db.call("SELECT current_setting('plangate.tenant', true) AS t")
        assert not row["t"]


async def test_the_service_creates_no_operator_key_on_an_external_database(owner: Any) -> None:
    """`*` is nobody's tenant, whatever a transaction says it is."""
    key = "INSERT INTO api_keys (tenant_id, id, hash, principal, scopes, created_by)"
    async with owner.transaction():
        await owner.execute("SET LOCAL ROLE plangate_app; SET LOCAL plangate.tenant = '*'")
        assert await owner.fetch("SELECT id FROM api_keys") == []
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await owner.execute(f"{key} VALUES ('*', 'key_x', sha256('x'), 'x', '{{admin}}', 'x')")


async def test_writing_for_another_tenant_is_rejected(plangate: World) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await plangate.sql("INSERT INTO threads (tenant_id, id) VALUES ('other', 'thr_x')")
    assert await plangate.sql("UPDATE threads SET key = 'x' WHERE tenant_id = 'other' RETURNING 1") == []
    for statement in (
        "UPDATE events SET type = 'x'",
        "DELETE FROM events",
        "UPDATE plan_transitions SET by = 'x'",
        "DELETE FROM approvals",
        "UPDATE approval_votes SET decision = 'approve'",
        "DELETE FROM approval_votes",
        "INSERT INTO tenants (tenant_id, reference_secret) VALUES ('acme', '')",
        "UPDATE api_keys SET scopes = '{admin}'",
        "UPDATE tenants SET limits = '{}'",
        "UPDATE tenants SET approval_floor = '{}'",
        "SELECT set_tenant('acme', NULL, '{}')",
        "DELETE FROM threads",
        "SELECT purge_rows('events', 'query_id', '{}', 1)",
        "SELECT clear_approvals('{}')",
        "SELECT release_blobs('{}')",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await plangate.sql(statement)


async def test_connections_of_a_pool_ask_for_a_type_once(site: Deployment) -> None:
    """Asking costs the database as much as many statements. The arguments are of an array and of a composite type."""
    types: TypeDefinitions = {}
    statements: list[list[str]] = []
    for _ in range(2):
        connection = await connect_session(site.dsn, types)
        try:
            sent: list[str] = []
            with connection.query_logger(lambda logged, sent=sent: sent.append(logged.query)):
                assert await connection.fetchval("SELECT $1::bytea[]", [b"a", b"b"]) == [b"a", b"b"]
                (row,) = await connection.fetch("SELECT t AS tenant FROM tenants t WHERE tenant_id = 'acme'")
                assert row["tenant"]["tenant_id"] == "acme"
            statements.append([sql for sql in sent if "typeinfo" in sql])
        finally:
            await connection.close()
    assert [len(sent) for sent in statements] == [2, 0]


@pytest.mark.parametrize("tenant", ["a'b", "A", "a b", "'; DROP TABLE events; --", "a" * 64, "-a"])
async def test_an_invalid_tenant_id_opens_no_transaction(plangate: World, tenant: str) -> None:
    with pytest.raises(ValueError, match="not a tenant id"):
        async with plangate.services.db.transaction(tenant):
            pass


# -- plans of the statements that carry concurrency, on tables that are worth an index


@pytest.fixture
async def filled(owner: Any) -> Any:
    await owner.execute(FILL)
    return owner


FILL = """
INSERT INTO runtimes (tenant_id, id, name, version, digest, wire) VALUES ('acme', 'rt_1', 'r', 1, 'x', '{}');
INSERT INTO threads (tenant_id, id) SELECT 'acme', 'thr_' || lpad(n::text, 6, '0') FROM generate_series(1, 4000) n;
INSERT INTO queries (tenant_id, id, thread_id, runtime_id, kind, agent, status, principal, prompt, request, ended_at)
SELECT 'acme', 'qry_' || lpad(n::text, 6, '0'), 'thr_' || lpad((n % 4000 + 1)::text, 6, '0'), 'rt_1', 'agent', 'a',
       CASE WHEN n > 20000 THEN 'queued' WHEN n > 19990 THEN 'running' ELSE 'succeeded' END, 'p', 'x', '{}',
       CASE WHEN n <= 19990 THEN now() END
  FROM generate_series(1, 20050) n;
INSERT INTO events (tenant_id, query_id, seq, type, xid, body)
SELECT CASE WHEN n % 3 = 0 THEN 'other' ELSE 'acme' END, 'qry_' || lpad((n / 10 + 1)::text, 6, '0'), n % 10 + 1,
       CASE WHEN n % 2 = 0 THEN 'text' ELSE 'work-end' END, (n / 20 + 3)::text::xid8, '{}'
  FROM generate_series(0, 30000) n;
INSERT INTO approvals (tenant_id, id, kind, target, digest, subject, glimpses, rule, query_id, work_id, agent, thread_id,
       runtime_id, requested_by, status, expires_at, decided_at)
SELECT 'acme', 'apr_' || n, 'tool', 't', sha256('x'), 'x', '{}', '{}', 'qry_000001', 'wrk_' || n, 'a', 'thr_000001',
       'rt_1', 'p', CASE WHEN n % 100 = 0 THEN 'pending' ELSE 'approved' END, now() + n * interval '1 s',
       CASE WHEN n % 100 <> 0 THEN now() END FROM generate_series(1, 5000) n;
INSERT INTO outgoing_calls (tenant_id, work_id, query_id, purpose, sender, name, definition_digest, request, replay, status,
       claim_before, timeout_ms, claimed_until)
SELECT 'acme', 'wrk_' || n, 'qry_000001', 'tool', 'client', 'add', '', '{}', 'never',
       CASE WHEN n % 200 = 0 THEN 'open' WHEN n % 200 = 1 THEN 'claimed' ELSE 'done' END, now() + interval '1 hour', 1000,
       now() + n * interval '1 s' FROM generate_series(1, 5000) n;
INSERT INTO plans (tenant_id, id, thread_id, runtime_id, spec_name, status, revision, query_id)
SELECT 'acme', 'pln_' || n, 'thr_000001', 'rt_1', 's',
       CASE WHEN n % 500 = 0 THEN 'executing' WHEN n % 500 = 1 THEN 'approved' ELSE 'executed' END, 1,
       'qry_' || lpad(n::text, 6, '0') FROM generate_series(1, 5000) n;
INSERT INTO documents (tenant_id, owner_id, kind, thread_id, base, body, head)
SELECT 'acme', 'thr_' || lpad(n::text, 6, '0'), 'state', 'thr_' || lpad(n::text, 6, '0'), '{}', '{}', 5
  FROM generate_series(1, 4000) n;
INSERT INTO document_writes (tenant_id, owner_id, kind, n, path, method, value, size_bytes, glimpse, checkpoint, work_id)
SELECT 'acme', 'thr_' || lpad(((n - 1) / 5 + 1)::text, 6, '0'), 'state', (n - 1) % 5 + 1, '†state.a', 'set', '1', 1, '1',
       CASE WHEN n % 5 = 3 THEN '{}'::bytea END, 'wrk_' || n FROM generate_series(1, 20000) n;
INSERT INTO call_variables (tenant_id, work_id, query_id, args, filled)
SELECT 'acme', 'wrk_' || n, 'qry_000001', '{}', '[]' FROM generate_series(1, 5000) n;
ANALYZE;
"""
BIG = {
    "queries",
    "events",
    "approvals",
    "outgoing_calls",
    "plans",
    "threads",
    "documents",
    "document_writes",
    "call_variables",
}


async def scanned(owner: Any, sql: str, *args: Any, as_app: bool = True) -> set[str]:
    """The big tables that the statement would read from end to end under the service's role."""
    tx = owner.transaction()
    await tx.start()
    try:
        await owner.execute("SET LOCAL plangate.tenant = 'acme'")
        await owner.execute(f"SET LOCAL random_page_cost = {SESSION_PARAMETERS['random_page_cost']}")
        if as_app:
            await owner.execute("SET LOCAL ROLE plangate_app")
        statement = await owner.prepare(f"EXPLAIN {sql}")
        text = "\n".join(r[0] for r in await statement.fetch(*args))
    finally:
        await tx.rollback()
    return {table for table in BIG if f"Seq Scan on {table}" in text}


async def body_of(owner: Any, function: str) -> str:
    sql = (
        "SELECT prosrc FROM pg_proc WHERE proname = $1 ORDER BY pronargs DESC LIMIT 1"  # the newest of a name
    )
    return str(await owner.fetchval(sql, function))


async def test_functions_that_find_due_work_do_not_scan_big_tables(filled: Any) -> None:
    for due in ("due_approvals", "due_calls", "stranded_queries"):
        sql = (await body_of(filled, due)).replace("p_limit", "$1")
        assert await scanned(filled, sql, 10, as_app=False) == set(), due


async def test_ended_queries_with_executing_plans_are_stranded(filled: Any) -> None:
    await filled.execute("DELETE FROM approvals")
    await filled.execute("DELETE FROM outgoing_calls")
    stranded = {row["id"] for row in await filled.fetch("SELECT id FROM stranded_queries(100)")}
    assert stranded == {f"qry_{n:06}" for n in range(500, 5001, 500)}


async def test_documents_and_their_logs_are_found_by_their_keys(filled: Any) -> None:
    document = ("acme", "thr_000007", "state")
    for sql, *args in (
        (state_store.LOAD, *document),
        (state_store.LOCK, *document),
        (state_store.OBJECTS_OF_QUERY, *document[:2]),
        (state_store.WRITES_OF_CALL, "acme", "wrk_7"),
        (state_store.LOG, *document, 4, 50),
        (state_store.CHECKPOINT, *document, 4, 0),
        (state_store.BETWEEN, *document, 1, 4),
        (state_store.FILLED_CALL, "acme", "wrk_7"),
    ):
        assert await scanned(filled, sql, *args) == set(), sql


async def test_claiming_does_not_scan_big_tables(filled: Any) -> None:
    source = await body_of(filled, "claim_queries")

    def part(begin: str, end: str) -> str:
        at = source.index(begin)
        return source[at : source.index(end, at)]

    lapsed = part("SELECT q.tenant_id, q.id FROM queries q", ") s;").replace("p_owner", "'me'")
    moving = part("SELECT q.tenant_id, q.id, c.share", "LOOP").replace("p_owner", "'me'")
    moving = moving.replace("p_suspects", "false").replace("p_company", "0")
    queued = part("SELECT q.tenant_id, q.id FROM (", ") s;")
    assert await scanned(filled, lapsed, as_app=False) == set()
    for sql in (moving, queued):
        sql = sql.replace("coalesce(cardinality(v_ids), 0)", "0").replace("p_limit", "$1::int")
        assert await scanned(filled, sql, 10, as_app=False) == set(), sql
    for function in ("count_suspects", "culprits", "claim_endings"):
        sql = (
            (await body_of(filled, function))
            .replace("p_limit", "10")
            .replace("p_again_s", "1")
            .replace("p_fatal", "3")
        )
        assert await scanned(filled, sql, as_app=False) == set(), function
