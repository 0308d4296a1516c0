"""Before a process works: wait for its database, bring the schema up to date, and name a pooler that cannot work."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from typing import Any, Final

import asyncpg

from app.base.postgres import hosts
from app.base.postgres.database import SESSION_PARAMETERS, connect_session, is_outage
from app.base.postgres.migrate import migrate
from app.deployment import Deployment

RETRY_S: Final = 0.5
POOLER_TIMEOUT_S: Final = 2.0
POOLER_ATTEMPTS: Final = 5

# PgBouncer reports its own errors and those of Postgres alike as protocol violations. With these words it may help to
# wait; an unknown database, user or parameter does not appear by waiting.
TRANSIENT_ERRORS: Final = (
    "cannot connect",
    "server login has been failing",
    "starting up",
    "shutting down",
    "recovery",
    "not yet accepting",
    "timeout",
    "no more connections",
    "too many",
)
UNSUPPORTED: Final = "unsupported startup parameter"
IGNORED_BY_POOLER: Final = ", ".join(name for name in SESSION_PARAMETERS if name != "application_name")
LOST_STATEMENT_ERRORS: Final = (
    asyncpg.InvalidSQLStatementNameError,
    asyncpg.DuplicatePreparedStatementError,
)

# Sent without a prepared statement, whose name a pooler may not know; the command tag has the number of rows.
IS_STANDBY: Final = "SELECT 1 WHERE pg_is_in_recovery()"
SERVER_PID: Final = "SELECT pg_backend_pid()"


async def prepare_database(site: Deployment, wait_s: float) -> None:
    """Wait for the database for up to `wait_s` seconds, migrate it, and check the connection to it. Exit with one line if
    it cannot be used."""
    await migrate_database(site, wait_s)
    if site.postgres is None and site.migrate_dsn != site.dsn:
        await wait_for_database(site.dsn, "DATABASE_URL", wait_s)
        await _check_pooler(site, site.dsn, "DATABASE_URL")


async def migrate_database(site: Deployment, wait_s: float) -> None:
    """Do the same for the login that owns the schema alone: the login of DATABASE_URL may not exist yet."""
    if site.postgres is None:  # the start of the embedded one has waited
        own = site.migrate_dsn == site.dsn
        variable = "DATABASE_URL" if own else "PLANGATE_MIGRATE_URL"
        await wait_for_database(site.migrate_dsn, variable, wait_s, session=own)
        await _check_pooler(site, site.migrate_dsn, variable, session=own)
    await migrate(site.migrate_dsn)


async def wait_for_database(dsn: str, variable: str, wait_s: float, *, session: bool = True) -> None:
    """Return once the database accepts connections and writes, and print why it does not yet. Exit after `wait_s`, or
    at once if waiting cannot help."""
    deadline = time.monotonic() + wait_s
    notified = ""
    while True:
        reason = await _reason_to_wait(dsn, variable, session=session)
        if reason is None:
            return
        if time.monotonic() >= deadline:
            waited = f" Plangate waited {wait_s:g} s for it." if wait_s else ""
            raise SystemExit(f"plangate: the database of {variable} cannot be used: {reason}.{waited}")
        if reason != notified:
            print(  # noqa: T201 - for the person who started it
                f"Waiting up to {wait_s:g} s for the database of {variable}: {reason}", flush=True
            )
            notified = reason
        await asyncio.sleep(RETRY_S)


async def _reason_to_wait(dsn: str, variable: str, *, session: bool) -> str | None:
    """Return why the database cannot be used yet; None if it can."""
    try:
        connection = await _connect(dsn, session=session)
        try:
            standby = await connection.execute(IS_STANDBY)
        finally:
            await _close(connection)
        return "it is a standby, which takes no writes" if standby == "SELECT 1" else None
    except asyncpg.ProtocolViolationError as error:
        text = str(error)
        if text.startswith(UNSUPPORTED):
            raise SystemExit(
                f"plangate: the PgBouncer of {variable} rejects the {text.removeprefix('unsupported ')}. Add to its "
                f"configuration: ignore_startup_parameters = {IGNORED_BY_POOLER}"
            ) from error
        if not any(words in text for words in TRANSIENT_ERRORS):
            raise _access_denied(variable, error) from error
        return text
    except ssl.SSLCertVerificationError:
        raise
    except Exception as error:
        if is_outage(error):
            return str(error) or "it does not answer"
        if isinstance(error, asyncpg.PostgresError):
            raise _access_denied(variable, error) from error
        raise


def _access_denied(variable: str, error: Exception) -> SystemExit:
    return SystemExit(f"plangate: the database of {variable} rejected this process: {error}.")


async def _connect(dsn: str, *, session: bool) -> Any:
    return await (connect_session(dsn) if session else hosts.connect(dsn, timeout=5, command_timeout=5))


async def _check_pooler(site: Deployment, dsn: str, variable: str, *, session: bool = True) -> None:
    """Exit if `dsn` goes through a pooler that cannot do what the service needs."""
    try:
        pooled = await _pools_transactions(dsn, session=session)
    except LOST_STATEMENT_ERRORS as error:
        raise SystemExit(
            f"plangate: {variable} goes through a pooler in transaction mode that loses prepared statements. PgBouncer "
            "must be 1.21 or newer with max_prepared_statements above 0, or use pool_mode = session."
        ) from error
    if not pooled:
        return
    wrong = {"PLANGATE_MIGRATE_URL": site.migrate_dsn, "PLANGATE_LISTEN_URL": site.listen_dsn}
    names = [name for name, url in wrong.items() if url == dsn]
    if names:
        raise SystemExit(
            f"plangate: {variable} goes through a pooler in transaction mode, where migrations and LISTEN do not work. "
            f"Set {' and '.join(names)} to an address of Postgres itself."
        )


async def _pools_transactions(dsn: str, *, session: bool) -> bool:
    """Return whether a pooler gives each transaction another connection of the server. Raises LOST_STATEMENT if
    prepared statements do not survive that.

    A second connection takes the server connection that the first one used last, and keeps it in a transaction. If it
    can, the server connections are shared by transactions, and the first connection must use its statement elsewhere.
    """
    first, second = [await _connect(dsn, session=session) for _ in range(2)]
    try:
        statement = await first.prepare(SERVER_PID)
        if await statement.fetchval() == first.get_server_pid():  # a pooler makes up pids
            return False
        for _ in range(POOLER_ATTEMPTS):
            used = await statement.fetchval()
            await second.execute("BEGIN")
            if await second.fetchval(SERVER_PID) == used:
                with contextlib.suppress(
                    TimeoutError
                ):  # with one connection to the server this cannot be determined
                    await statement.fetchval(timeout=POOLER_TIMEOUT_S)
                return True
            await second.execute("ROLLBACK")
        return False
    finally:
        await _close(first, second)


async def _close(*connections: Any) -> None:
    for connection in connections:
        with contextlib.suppress(Exception):  # then it is terminated
            await connection.close(timeout=POOLER_TIMEOUT_S)
