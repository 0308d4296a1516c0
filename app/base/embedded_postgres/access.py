"""Login rules of the embedded Postgres: roles, pg_hba.conf and pg_ident.conf.

The service logs in as `plangate_owner`, which owns the schema, may create roles, and is not a superuser. Only
this package logs in as the superuser. Both use peer authentication: the kernel says which account connects,
and pg_ident.conf names the account that runs Postgres and root. Every other role needs a password.
"""

from __future__ import annotations

from pathlib import Path

from app.base.embedded_postgres import places
from app.base.embedded_postgres.spec import ServerSpec
from app.base.embedded_postgres.wire import SUPERUSER

OWNER = "plangate_owner"
BACKUP = "plangate_backup"
_ROLES = (SUPERUSER, OWNER, BACKUP)
_MAP = "plangate"
_NOTE = "# Plangate writes this file when it starts Postgres. Your changes to it are lost."

_HBA = f"""{_NOTE}
local  all          {",".join(_ROLES)}  peer map={_MAP}
local  replication  {SUPERUSER}  peer map={_MAP}
local  all          all  scram-sha-256
"""

PREPARE = """
DO $$
BEGIN
    SET LOCAL lock_timeout = '3s';
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'plangate_owner') THEN
        CREATE ROLE plangate_owner LOGIN CREATEROLE;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'plangate_backup') THEN
        CREATE ROLE plangate_backup LOGIN BYPASSRLS IN ROLE pg_read_all_data;
    END IF;
    IF (SELECT datdba FROM pg_database WHERE datname = current_database()) <> 'plangate_owner'::regrole THEN
        EXECUTE format('ALTER DATABASE %I OWNER TO plangate_owner', current_database());
    END IF;
END $$
"""
"""Create the roles, and give a database to its owner. Run by the superuser at every start; harmless to repeat."""


def write_files(server: ServerSpec) -> bool:
    """Write pg_hba.conf and pg_ident.conf if they differ. Return whether Postgres must reload them."""
    cluster = server.places.cluster
    return any(
        [
            _write(server, cluster / "pg_hba.conf", _HBA),
            _write(server, cluster / "pg_ident.conf", _ident(server.account.name)),
        ]
    )


def _ident(account: str) -> str:
    accounts = dict.fromkeys((account, "root"))
    lines = [f'{_MAP}  "{name}"  {role}' for name in accounts for role in _ROLES]
    return "\n".join([_NOTE, *lines, ""])


def _write(server: ServerSpec, path: Path, text: str) -> bool:
    try:
        if path.read_text("utf-8") == text:
            return False
    except FileNotFoundError:
        pass
    places.write_atomically(path, text, server.account)
    return True
