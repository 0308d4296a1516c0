"""The composition root: settings in, one object of services out. Doors and tests start from it."""

from __future__ import annotations

import asyncio
import importlib
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from app.agents.builtin_tools import agents
from app.agents.builtin_tools.artifacts import ArtifactTools
from app.agents.builtin_tools.catalog import CatalogTools
from app.agents.builtin_tools.client_workspace import ClientWorkspace
from app.agents.builtin_tools.file_sources import FileSources
from app.agents.builtin_tools.memory import MemoryTools
from app.agents.builtin_tools.references import ReferenceTools
from app.agents.builtin_tools.workspace import WorkspaceTools
from app.agents.providers import ProviderPool
from app.agents.runner import Runner
from app.approvals.service import ApprovalService
from app.artifacts.chain import Chainer
from app.artifacts.decisions import ArtifactDecisions
from app.artifacts.service import ArtifactService
from app.base import embedded_postgres
from app.base.blobs.local import LocalBlobs
from app.base.blobs.store import BlobStore
from app.base.cursors import CursorSigner
from app.base.egress import KEEPALIVE_CONNECTIONS, EgressPolicy, Lookups
from app.base.extras import MissingExtra, import_with_extra
from app.base.ids import new_id
from app.base.json.process_pool import JsonProcessPool
from app.base.metrics import Metrics
from app.base.postgres.database import Database, open_database
from app.base.postgres.health import HealthMonitor
from app.base.postgres.listener import Listener
from app.base.public_url import PublicUrl
from app.base.schema.checker import SchemaChecker
from app.base.sealing import Sealer, derive_key
from app.base.shares import TenantShares
from app.base.watchdog import LoopWatchdog
from app.calls.dispatch import CallDispatcher
from app.calls.gate import ToolGate
from app.calls.tool_calls import ToolCalls
from app.catalog.service import SourceService
from app.catalog.sessions import SourceSessions
from app.documents.service import DocumentService, purge_forgotten
from app.engine.children import ChildCommand, ChildLimits, ChildProcesses
from app.engine.ending import QueryEndings
from app.engine.processes import ProcessLocks, ProcessRecord
from app.engine.worker import PeriodicTask, Worker
from app.journal.ended_work import work_counter
from app.journal.hub import Hub
from app.journal.models import parse_query_key
from app.journal.streams import Streams
from app.journal.writer import JournalWriter
from app.llm.client import STREAMS_PER_SLOT, ModelBounds, ModelTraffic
from app.plans.host import HostPlanService
from app.plans.service import PlanService
from app.plans.toolkit import PlanTools
from app.queries.deletion import Deletions
from app.queries.profiles import ProfileStarter, SourceProfiler
from app.queries.service import QueryService
from app.references.service import ReferenceService
from app.runtimes.checks import Environment
from app.runtimes.service import Runtimes
from app.runtimes.signing import SigningSecrets
from app.settings import Settings
from app.telemetry.service import Exporter, SpanReporter
from app.tenancy import idempotency
from app.tenancy.http import Door
from app.tenancy.secrets import Secrets
from app.tenancy.service import Tenancy
from app.tenancy.sessions import Sessions
from app.tenancy.unknown_keys import UnknownKeyBounds, UnknownKeys
from app.tools.claims import ClientCalls
from app.tools.hints import CallNotifications
from app.tools.ledger import CallLedger
from app.tools.models import Sender
from app.tools.transports.http import HttpSender
from app.tools.transports.mcp.pinning import McpPinning
from app.tools.transports.mcp.sender import McpSender
from app.tools.transports.python import PythonSender, installed_functions
from app.variables.service import VariableService
from app.workspace.service import Workspaces


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Everything of a process, wired. `start` and `aclose` bracket its life."""

    db: Database
    door: Door
    hub: Hub
    journal: JournalWriter
    streams: Streams
    listener: Listener
    worker: Worker
    children: ChildProcesses | None
    tenancy: Tenancy
    sessions: Sessions
    cors_origins: tuple[str, ...]
    secrets: Secrets
    runtimes: Runtimes
    providers: ProviderPool
    queries: QueryService
    approvals: ApprovalService
    references: ReferenceService
    documents: DocumentService
    sources: SourceService
    profiles: ProfileStarter
    signing: SigningSecrets
    mcp_pinning: McpPinning
    calls: CallLedger
    dispatch: CallDispatcher
    client_calls: ClientCalls
    call_hints: CallNotifications
    plans: PlanService
    host_plans: HostPlanService
    schemas: SchemaChecker
    metrics: Metrics
    lookups: Lookups
    metrics_token: str | None
    watchdog: LoopWatchdog
    spans: SpanReporter | None
    workspaces: Workspaces
    artifacts: ArtifactService
    artifact_decisions: ArtifactDecisions
    deletions: Deletions
    chainer: Chainer
    chores: tuple[PeriodicTask, ...]
    health: HealthMonitor

    async def start(self) -> None:
        self.watchdog.start()
        if self.spans is not None:
            self.spans.start()
        self.journal.start()
        self.streams.start()
        self.listener.start()
        await self.worker.start(self.chores)
        if self.children is not None:
            self.children.start()

    async def start_child(self) -> None:
        """Start what a child process needs. It listens on no port and runs only the queries that its parent gives it."""
        if self.spans is not None:
            self.spans.start()
        self.journal.start()
        await self.worker.start()

    def stop_starting(self) -> None:
        """Start no more queries, here or in child processes: leave them to other processes."""
        self.worker.stop_starting()
        if self.children is not None:
            self.children.stop_starting()

    async def aclose(self, grace_s: float = 3.0) -> None:
        """End the streams, hand queries back, write what is pending, and close the pool."""
        self.health.draining = True
        await self.streams.aclose()
        self.call_hints.close()
        children = () if self.children is None else (self.children.aclose(),)
        await asyncio.gather(self.worker.drain(grace_s), *children)
        await self.journal.aclose()
        if self.spans is not None:
            await self.spans.aclose()
        await self.health.aclose()
        await self.listener.aclose()
        await self.providers.aclose()
        await self.dispatch.aclose()
        await self.workspaces.blobs.aclose()
        await self.db.aclose()
        self.watchdog.stop()


@dataclass(frozen=True, slots=True)
class Site:
    """Where a process finds its database, its master key and the bodies of files."""

    dsn: str
    listen_dsn: str
    migrate_dsn: str
    master: bytes
    blobs: str
    postgres: embedded_postgres.EmbeddedPostgres | None = None
    is_local: bool = False
    """Return whether the database is the embedded one: everything is on this machine."""

    def release(self) -> None:
        if self.postgres is not None:
            self.postgres.release()


def find_site(settings: Settings) -> Site:
    """Return the database that the settings name, or the embedded one, which is started if needed; and the
    master key."""
    blobs = settings.blobs or str(settings.data_dir / "blobs")
    if settings.database_url is not None:
        if settings.secret_key is None:
            raise SystemExit(
                "PLANGATE_SECRET_KEY is needed with DATABASE_URL: at least 32 characters that every process of this "
                'database shares. Make one with: python3 -c "import secrets; print(secrets.token_urlsafe(32))"'
            )
        url = settings.database_url
        return Site(
            url,
            settings.listen_url or url,
            settings.migrate_url or url,
            derive_key(settings.secret_key.encode(), "master"),
            blobs,
        )
    embedded_postgres.prepare_data_dir(settings.data_dir)
    text = settings.secret_key or kept_secret(settings.data_dir / "secret-key")
    postgres = embedded_postgres.start(settings.data_dir)
    dsn = postgres.dsn()
    return Site(dsn, dsn, dsn, derive_key(text.encode(), "master"), blobs, postgres, is_local=True)


def child_greeting(settings: Settings, site: Site) -> dict[str, Any]:
    """Return the first message to a child process: the settings and site of this process, secrets included."""
    return {
        "settings": settings.as_given(),
        "site": {
            "dsn": site.dsn,
            "listen_dsn": site.listen_dsn,
            "migrate_dsn": site.migrate_dsn,
            "master": site.master.hex(),
            "blobs": site.blobs,
            "is_local": site.is_local,
        },
    }


def greeted_child(greeting: Mapping[str, Any]) -> tuple[Settings, Site]:
    """Return the settings and the site from the parent's first message, with a pool of two database connections."""
    told = greeting["site"]
    settings = Settings.model_validate(greeting["settings"]).model_copy(update={"pool_size": 2})
    return settings, Site(**{**told, "master": bytes.fromhex(told["master"])})


def kept_secret(path: Path) -> str:
    """Return the text of a file that only its owner can read. Create the file if it does not exist."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_text(encoding="utf-8").strip()
    with os.fdopen(handle, "w") as file:
        text = secrets.token_urlsafe(32)
        file.write(text + "\n")
    return text


def open_blobs(where: str) -> BlobStore:
    """Return the blob store at a directory, which `prepare_blobs` makes, or at an s3:// URL. Nothing
    connects before the first body."""
    if "://" not in where:
        return LocalBlobs(Path(where))
    try:
        store: BlobStore = import_with_extra("app.base.blobs.bucket", "buckets").BucketBlobs(where)
        return store
    except MissingExtra as error:
        raise SystemExit(f"PLANGATE_BLOBS is a bucket: {error}.") from error
    except ValueError as error:
        raise SystemExit(f"PLANGATE_BLOBS is a directory or a bucket: {error}.") from error


def prepare_blobs(where: str) -> None:
    """Create the directory for bodies and try to write to it, so that an unusable directory is reported at
    startup. A bucket is not tried: an outage of the bucket passes."""
    if "://" in where:
        return
    try:
        LocalBlobs(Path(where)).prepare()
    except OSError as error:
        raise SystemExit(
            f"Bodies of files cannot be kept in {where} (PLANGATE_BLOBS): {error.strerror}. "
            "It has to be a directory that the service may write to."
        ) from error


def exporter_of(settings: Settings, metrics: Metrics) -> Callable[[], Exporter] | None:
    """Return a function that builds the exporter of spans, or None if none is configured. Its SDK is
    imported only then."""
    endpoint = settings.otlp_endpoint
    if not endpoint:  # an empty variable is none, as OpenTelemetry says
        return None

    def build() -> Exporter:
        made: Exporter = importlib.import_module("app.telemetry.otel").build(endpoint, metrics)
        return made

    return build


def assemble(
    settings: Settings,
    site: Site,
    *,
    with_worker: bool = True,
    exporter: Callable[[], Exporter] | None = None,
    child_id: str | None = None,
    child_argv: Sequence[str] = (),
) -> Services:
    """Wires the services of a process. Nothing connects or runs before `start`.

    Args:
        exporter: builds where spans go, in the place of what the settings name.
        child_id: this is a child process, under the id by which its parent registered it.
        child_argv: the command that starts child processes; without it this process starts none.
    """
    metrics = Metrics()
    db = open_database(site.dsn, size=settings.pool_size, metrics=metrics)
    db.on_report(work_counter(metrics))
    origin = child_id or new_id("prc_")
    hub = Hub()
    journal = JournalWriter(db, hub, origin)
    signer = CursorSigner(derive_key(site.master, "cursors"))
    streams = Streams(
        db,
        hub,
        signer,
        reads=settings.stream_reads or max(1, settings.pool_size // 3),
        shared_bytes=settings.large_event_bytes,
    )
    sealer = Sealer(derive_key(site.master, "secrets"))
    key_bounds = UnknownKeyBounds(
        settings.unknown_keys, settings.unknown_key_s, settings.unknown_keys_per_client_per_s
    )
    tenancy = Tenancy(db, sealer, UnknownKeys(key_bounds, metrics))
    sessions = Sessions(db, tenancy, settings.session_s)
    public_url = None if settings.public_url is None else PublicUrl.parse(settings.public_url)
    kept = Secrets(db, sealer)
    schemas, processes = SchemaChecker(), JsonProcessPool()
    lookups = Lookups(settings.dns_lookups, settings.tenant_dns_lookups, on_wait=metrics.dns_wait.observe)
    egress = EgressPolicy.of(settings.allow_hosts, resolver=lookups)
    points = installed_functions()
    runtimes = Runtimes(db, Environment(egress, frozenset(points)), processes)
    signing = SigningSecrets(db, sealer)
    slots = settings.slots if with_worker else 0
    traffic = ModelTraffic(
        ModelBounds(
            streams=settings.model_streams or max(1, slots) * STREAMS_PER_SLOT,
            keepalive=max(KEEPALIVE_CONNECTIONS, slots),
            line_bytes=settings.model_line_bytes,
            bytes_per_token=settings.model_bytes_per_token,
            tenant_bytes_per_s=settings.tenant_model_bytes_per_s,
        ),
        metrics,
    )
    providers = ProviderPool(
        kept,
        egress,
        settings.provider_envs,
        local=site.is_local,
        traffic=traffic,
        aws_tenants=settings.aws_tenants,
    )
    references = ReferenceService(db, tenancy, schemas, processes)
    calls = CallLedger(db, references.hydrate, origin)
    build = exporter or exporter_of(settings, metrics)
    mcp = McpSender(egress, kept)
    senders: dict[str, Sender] = {
        "http": HttpSender(egress, kept, signing, traced=build is not None),
        "mcp": mcp,
        "python": PythonSender(points),
    }
    dispatch = CallDispatcher(calls, senders, settings.lease_s, metrics)
    call_hints = CallNotifications()
    workspaces = Workspaces(db, open_blobs(site.blobs), is_elsewhere=runtimes.has_client_workspace)
    chainer = Chainer(derive_key(site.master, "artifacts"))
    artifacts = ArtifactService(db, workspaces, chainer)
    decisions = ArtifactDecisions(artifacts, chainer)
    deletions = Deletions(db, artifacts)
    documents = DocumentService(schemas, processes)
    source_paths = tuple(settings.source_paths)
    sources = SourceService(SourceSessions(db, kept, egress, source_paths), source_paths)
    variables = VariableService(references, documents, schemas, artifacts, processes)
    plans = PlanService(db, references, runtimes, schemas, variables, artifacts)
    approvals = ApprovalService(db, runtimes, schemas, plans.on_gate_closed)
    plan_tools = PlanTools(plans, approvals, references, dispatch)
    reference_tools = ReferenceTools(references)
    file_sources = FileSources(artifacts, references)
    client_files = ClientWorkspace(dispatch, workspaces, file_sources)
    toolkits = {
        "call_agent": agents.call_agent,
        "resolveRef": reference_tools.resolve,
        "glimpseRef": reference_tools.glimpse,
        "storePlan": plan_tools.store,
        "getPlan": plan_tools.get,
        "executePlan": plan_tools.execute,
        **client_files.verbs(WorkspaceTools(workspaces, file_sources).verbs()),
        **ArtifactTools(artifacts, decisions, client_files).verbs(),
        **MemoryTools(documents, variables).verbs(),
        **CatalogTools(sources, references).verbs(),
    }
    # In this order: a plan asks what became of the offers of its actions.
    end_hooks = (calls.withdraw_of_query, plans.end_of_query, approvals.cancel_of_query)
    tool_calls = ToolCalls(
        toolkits, ToolGate(approvals, dispatch, processes), dispatch, references, schemas, variables
    )
    runner = Runner(
        db,
        journal,
        runtimes,
        providers,
        tool_calls,
        {"plan": plan_tools.execute_for_host, "profile": SourceProfiler(sources).run},
        end_hooks,
        schemas,
        variables,
        artifacts,
        references,
    )
    locks = None if site.postgres is None else ProcessLocks(site.postgres.data_dir / "processes")
    process = ProcessRecord(db, origin, settings.lease_s, locks=locks, is_child=child_id is not None)
    worker = Worker(
        db,
        process,
        slots,
        runner.advance,
        settings.lease_s,
        claims=child_id is None,
    )
    children = None
    if child_argv and with_worker:
        children = ChildProcesses(
            db,
            origin,
            ChildCommand(child_argv, child_greeting(settings, site)),
            ChildLimits(settings.child_processes, settings.child_memory_mb * 1024 * 1024),
            settings.lease_s,
        )
    endings = QueryEndings(db, end_hooks)
    spans = None if build is None else SpanReporter(db, build, metrics, content=settings.telemetry_content)
    if spans is not None:
        db.on_report(spans.enqueue)
        worker.on_taken_over(spans.enqueue_takeover)
    queries = QueryService(
        runtimes,
        approvals,
        schemas,
        end_hooks,
        worker,
        db,
        hub,
        "" if public_url is None else public_url.path,
    )

    def journal_hint(payload: str) -> None:
        who, _, names = payload.partition("|")
        if who != origin:
            hub.invalidate(None if names == "*" else [parse_query_key(name) for name in names.split(",")])

    def gap() -> None:
        hub.invalidate(None)
        call_hints.wake_all()
        worker.wake_all()

    channels = {
        "plangate_journal": journal_hint,
        "plangate_wake": worker.on_notify,
        "plangate_calls": call_hints.on_notify,
    }
    listener = Listener(site.listen_dsn, channels, gap)
    return Services(
        db=db,
        door=Door(db, tenancy, signer, public_url=public_url),
        hub=hub,
        journal=journal,
        streams=streams,
        listener=listener,
        worker=worker,
        children=children,
        tenancy=tenancy,
        sessions=sessions,
        cors_origins=tuple(settings.cors_origins),
        secrets=kept,
        runtimes=runtimes,
        providers=providers,
        queries=queries,
        approvals=approvals,
        references=references,
        documents=documents,
        sources=sources,
        profiles=ProfileStarter(runtimes, queries),
        signing=signing,
        mcp_pinning=McpPinning(mcp, TenantShares(settings.mcp_lists, settings.tenant_mcp_lists), metrics),
        calls=calls,
        dispatch=dispatch,
        client_calls=ClientCalls(references.hydrate),
        call_hints=call_hints,
        plans=plans,
        host_plans=HostPlanService(plans, queries),
        schemas=schemas,
        metrics=metrics,
        lookups=lookups,
        metrics_token=settings.metrics_token,
        watchdog=LoopWatchdog(metrics, settings.loop_blocked_ms / 1000),
        spans=spans,
        workspaces=workspaces,
        artifacts=artifacts,
        artifact_decisions=decisions,
        deletions=deletions,
        chainer=chainer,
        chores=(
            endings.finish_due,
            endings.repair_stranded,
            approvals.expire_due,
            calls.lapse_due,
            queries.fail_due_limits,
            references.sweep,
            partial(purge_forgotten, db),
            workspaces.collect,
            deletions.finish_due,
            lambda: idempotency.sweep(db),
            sessions.sweep,
        ),
        health=HealthMonitor(db),
    )
