"""Open sources, each in a helper process that is killed at its time limit."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any, Final

import orjson

from app.base.egress_policy import EgressDenied, EgressPolicy, requests_of
from app.base.errors import Invalid, TooLarge
from app.base.json.process_pool import JsonProcess, JsonProcessPool, ProcessLimits
from app.base.postgres.database import Database
from app.base.shares import TenantShares
from app.catalog import store
from app.catalog.addresses import AddressRejected, parse_address
from app.catalog.files import SourcePathNotAllowed, resolve_files
from app.catalog.models import MAX_TIMEOUT_MS, MIB, Source, StatementResult
from app.catalog.problems import StatementProblem
from app.catalog.statement_slots import StatementSlots
from app.tenancy.secrets import Secrets

WORKER: Final = "app.catalog.source_worker"
"""The module of the processes. It needs packages that this process may not have."""

MAX_PROCESSES: Final = 8
"""Sources that a process of the service has open at once; one tenant has at most half of them."""

MEMORY_MB: Final = 512
"""The memory limit of DuckDB. The process may use twice as much, for results and their JSON."""

OPEN_S: Final = 20.0
GRACE_S: Final = 2.0
PREVIEW_SQL_CHARS: Final = 200
TOO_MUCH_MEMORY: Final = "The statement needs more memory than a source has: read fewer rows or columns."
NO_EXTRA: Final = (
    "Data sources need packages that are not installed. The operator installs them with: "
    "pip install 'plangate-server[data]'."
)


class OpenSource:
    """A source that is open in a separate process."""

    def __init__(self, source: Source, process: JsonProcess) -> None:
        self.source = source
        self._process = process

    async def request(
        self, verb: str, timeout_s: float, running: str, **head: Any
    ) -> tuple[dict[str, Any], bytes]:
        """Return the response of the process: its head and the value. `running` names the work in the error if it is stopped.
        Raise StatementProblem."""
        try:
            async with asyncio.timeout(timeout_s + GRACE_S):
                response: Awaitable[tuple[bytes, bytes]] = (
                    self._process.keep(f"{WORKER}:open_source", orjson.dumps(head))
                    if verb == "open"
                    else self._process.run(f"{WORKER}:run_request", verb, orjson.dumps(head))
                )
                encoded, data = await response
        except TimeoutError as error:
            raise self._timed_out(timeout_s, running) from error
        except TooLarge as error:
            raise StatementProblem("statement_too_large", TOO_MUCH_MEMORY) from error
        fields: dict[str, Any] = orjson.loads(encoded)
        problem = fields.get("problem")
        if problem is not None and problem["code"] == "timeout":
            raise self._timed_out(timeout_s, running)
        if problem is not None:
            raise StatementProblem(problem["code"], problem["message"])
        return fields, data

    def _timed_out(self, timeout_s: float, running: str) -> StatementProblem:
        return StatementProblem(
            "timeout",
            f"Stopped after {timeout_s:g} s, the limit of the source {self.source.name!r}: {running}",
        )

    async def run(
        self,
        sql: str,
        params: Sequence[Any] = (),
        *,
        tagged: Mapping[str, Mapping[str, bool]],
        max_bytes: int,
        max_rows: int | None = None,
    ) -> StatementResult:
        """Run one statement within the limits of the source. `tagged` says of columns whether they are tagged
        sensitive. Raise StatementProblem."""
        limits = self.source.limits
        preview = sql if len(sql) <= PREVIEW_SQL_CHARS else f"{sql[:PREVIEW_SQL_CHARS]}…"
        answer, value = await self.request(
            "query",
            limits.timeout_ms / 1000,
            preview,
            sql=sql,
            params=list(params),
            sensitive=self.source.sensitive,
            tagged=tagged,
            maxRows=limits.rows if max_rows is None else min(max_rows, limits.rows),
            maxBytes=min(limits.bytes, max_bytes),
            timeoutMs=limits.timeout_ms,
        )
        return StatementResult(
            value, answer.get("glimpse"), answer["rowCount"], answer["elapsedMs"], answer["truncated"]
        )


class SourceSessions:
    """Opens sources. `source_paths` are what the operator allows all tenants to read."""

    def __init__(
        self, db: Database, secrets: Secrets, egress: EgressPolicy, source_paths: Sequence[str]
    ) -> None:
        self._db = db
        self._secrets = secrets
        self._egress = egress
        self._source_paths = tuple(source_paths)
        self._pool = JsonProcessPool(
            ProcessLimits(
                memory_bytes=2 * MEMORY_MB * MIB, cpu_s=4 * MAX_TIMEOUT_MS // 1000, at_once=MAX_PROCESSES
            )
        )
        self._shares = TenantShares(MAX_PROCESSES, MAX_PROCESSES // 2)
        self._statement_slots = StatementSlots()
        self._own_cluster: str | None = None

    @asynccontextmanager
    async def open(self, tenant: str, source: Source) -> AsyncIterator[OpenSource]:
        """Open a source for the length of the block. Wait while as many statements run on it as its limit
        allows. Raise StatementProblem."""
        if any(importlib.util.find_spec(name) is None for name in ("duckdb", "sqlglot")):
            raise StatementProblem("source_unavailable", NO_EXTRA)
        slot = self._statement_slots.slot(tenant, source.name, source.limits.concurrent_statements)
        async with slot, self._shares.slot(tenant), self._pool.open() as process:
            session = OpenSource(source, process)
            opening = await self._open_request(tenant, source)
            answer, _ = await session.request(
                "open", OPEN_S, "opening the source", kind=source.kind, **opening
            )
            if source.kind == "postgres":
                await self._reject_own_cluster(tenant, answer["cluster"])
            yield session

    async def _open_request(self, tenant: str, source: Source) -> dict[str, Any]:
        """Return the request that opens the source in the process."""
        if source.kind == "postgres":
            return await self._postgres(tenant, source)
        declared = (*self._source_paths, *(source.paths if source.declared else ()))
        try:
            files = await asyncio.to_thread(resolve_files, source.kind, source.paths, declared)
        except SourcePathNotAllowed as error:
            raise StatementProblem("source_path_not_allowed", error.detail) from error
        except Invalid as error:
            raise StatementProblem("source_unavailable", error.detail) from error
        except (OSError, ValueError) as error:
            raise StatementProblem("source_unavailable", f"The files cannot be read: {error}.") from error
        return {
            "files": [[file.path, file.name, file.format] for file in files],
            "nullValues": list(source.null_values),
            "immutable": source.immutable and source.declared,
            "memoryMb": MEMORY_MB,
        }

    async def _postgres(self, tenant: str, source: Source) -> dict[str, Any]:
        assert source.secret is not None  # the table says so
        url = await self._secrets.read(tenant, source.secret)
        if url is None:
            raise StatementProblem(
                "missing_secret",
                f"The source {source.name!r} needs the secret {source.secret!r}, which does not exist: set it "
                f"with PUT /secrets/{source.secret}.",
            )
        try:
            address = parse_address(url)
            with requests_of(tenant):
                async with asyncio.timeout(OPEN_S):
                    addresses = await self._egress.addresses(address.host, address.port)
        except AddressRejected as error:
            raise StatementProblem(
                "source_rejected", f"The URL in the secret {source.secret!r} cannot be used: {error}."
            ) from error
        except EgressDenied as error:
            raise StatementProblem("source_rejected", str(error)) from error
        except (OSError, TimeoutError) as error:
            raise StatementProblem(
                "source_unavailable", f"The host of the source {source.name!r} was not found."
            ) from error
        return {
            "address": asdict(address),
            "addresses": addresses,
            "schemas": list(source.schemas),
            "timeoutMs": source.limits.timeout_ms,
        }

    async def _reject_own_cluster(self, tenant: str, cluster: str | None) -> None:
        """Raise StatementProblem for the cluster of the service's own database, or of a copy of it, under
        whatever name it was reached."""
        if cluster is None:
            raise StatementProblem(
                "source_rejected",
                "The role of the source may not execute pg_control_system(), so it is unknown whether this is the "
                "database of the service itself. Allow it: GRANT EXECUTE ON FUNCTION pg_control_system() TO the role.",
            )
        if self._own_cluster is None:
            async with self._db.transaction(tenant) as tx:
                self._own_cluster = await store.cluster_identity(tx)
        if cluster == self._own_cluster:
            raise StatementProblem(
                "source_rejected",
                "This is the database cluster of the service itself; it cannot be a source.",
            )
