"""The SQL of backups and restores."""

from __future__ import annotations

from typing import Final

FACTS: Final = """
SELECT current_user AS login, r.rolsuper OR r.rolbypassrls AS reads_all, current_database() AS database,
       split_part(current_setting('server_version'), ' ', 1) AS version,
       current_setting('server_version_num')::int / 10000 AS major,
       to_regclass('public.alembic_version') IS NOT NULL AS has_schema,
       to_regclass('public.blobs') IS NOT NULL AS has_blobs
  FROM pg_roles r WHERE r.rolname = current_user
"""
LET_IT_TAKE_TIME: Final = (
    "SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0; SET search_path = ''"
)
EXPORT_SNAPSHOT: Final = "SELECT pg_export_snapshot()"
REVISION: Final = "SELECT version_num FROM public.alembic_version"
MARKER: Final = "SELECT marker FROM public.installation"
BLOBS: Final = "SELECT tenant_id, digest, size_bytes, named FROM public.blobs ORDER BY tenant_id, digest"

# Roles belong to the cluster and are not in a dump: those that grants and policies of this database name.
ROLES: Final = """
SELECT DISTINCT pg_get_userbyid(d.refobjid) AS role FROM pg_shdepend d
 WHERE d.dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
   AND d.refclassid = 'pg_authid'::regclass AND d.deptype IN ('a', 'r') ORDER BY 1
"""
# The restoring login becomes the owner of everything; these functions need theirs to span tenants.
SCAN_FUNCTIONS: Final = """
SELECT p.oid::regprocedure::text AS function FROM pg_proc p
 WHERE p.proowner = to_regrole('plangate_scan') ORDER BY 1
"""

# What is there, but for the system's own and what belongs to extensions.
NOT_EMPTY: Final = """
SELECT format('%I.%I', n.nspname, o.name) FROM (
    SELECT 'pg_class'::regclass AS kind, oid, relnamespace AS namespace, relname AS name FROM pg_class
     WHERE relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
    UNION ALL
    SELECT 'pg_proc'::regclass, oid, pronamespace, proname FROM pg_proc) o
  JOIN pg_namespace n ON n.oid = o.namespace
 WHERE n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'
   AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = o.kind AND d.objid = o.oid AND d.deptype = 'e')
 ORDER BY 1 LIMIT 1
"""
SERVICES: Final = """
SELECT count(*) FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name = 'plangate'
"""
TRY_LOCK: Final = "SELECT pg_try_advisory_lock($1)"

# As migration 0001 does. A login that already acts as both roles need not be able to grant them.
MAKE_ROLES: Final = """
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'plangate_app') THEN CREATE ROLE plangate_app NOLOGIN; END IF;
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'plangate_scan') THEN CREATE ROLE plangate_scan NOLOGIN; END IF;
    BEGIN
        GRANT plangate_app, plangate_scan TO CURRENT_USER;
    EXCEPTION WHEN insufficient_privilege THEN
        IF NOT (pg_has_role('plangate_app', 'USAGE') AND pg_has_role('plangate_scan', 'USAGE')) THEN RAISE; END IF;
    END;
END $$
"""
MISSING_ROLES: Final = """
SELECT role FROM unnest($1::text[]) role WHERE role <> 'public' AND to_regrole(quote_ident(role)) IS NULL ORDER BY 1
"""


# The table of migration 0006: a backup of an earlier schema has none.
# A session that ended after the backup must not come back. TRUNCATE is not subject to row-level security.
_END_SESSIONS: Final = """
DO $$ BEGIN
    IF to_regclass('public.sessions') IS NOT NULL THEN
        TRUNCATE public.sessions;
    END IF;
END $$;
"""
_GENERATION: Final = (
    "CREATE TABLE IF NOT EXISTS public.generation (one boolean PRIMARY KEY DEFAULT true CHECK (one), "
    "number bigint NOT NULL);\n"
)


# The processes of the snapshot are not those that will work here: their leases end, and count against no query.
_END_PROCESSES: Final = """
SET LOCAL row_security = on;
DO $$ BEGIN
    IF to_regclass('public.replication') IS NOT NULL THEN
        DELETE FROM public.replication;  -- of another cluster
    END IF;
    IF to_regclass('public.processes') IS NOT NULL THEN
        DELETE FROM public.lost_leases l USING public.processes p WHERE p.id = l.process_id AND p.ended_at IS NULL;
        UPDATE public.processes SET ended_at = clock_timestamp(), end_reason = 'stopped' WHERE ended_at IS NULL;
    END IF;
    UPDATE public.queries SET lease_owner = NULL, lease_expires_at = NULL WHERE lease_expires_at IS NOT NULL;
END $$;
"""


def finish(functions: list[str], number: int) -> str:
    """Return the last statements of a restore's transaction: they set owners and start a new history. `functions` are
    signatures as Postgres wrote them, from a backup whose dump is executed anyway."""
    owners = "".join(f"ALTER FUNCTION {function} OWNER TO plangate_scan;\n" for function in functions)
    return (
        "GRANT CREATE ON SCHEMA public TO plangate_scan;\n"
        f"{owners}"
        "REVOKE CREATE ON SCHEMA public FROM plangate_scan;\n"
        f"{_END_PROCESSES}{_END_SESSIONS}{_GENERATION}"
        f"INSERT INTO public.generation (number) VALUES ({number:d}) "
        "ON CONFLICT (one) DO UPDATE SET number = excluded.number;\n"
        "COMMIT;\n"
    )
