"""The composition root: settings in, one object of services out. The API, workers, commands and tests start from it."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from plangate.spec.toolkits import RESOLVE

from app.agents.builtin_tools import agents
from app.agents.builtin_tools.artifacts import ArtifactTools
from app.agents.builtin_tools.catalog import CatalogTools
from app.agents.builtin_tools.client_workspace import ClientWorkspace
from app.agents.builtin_tools.file_sources import FileSources
from app.agents.builtin_tools.memory import MemoryTools
from app.agents.builtin_tools.references import ReferenceTools
from app.agents.builtin_tools.workspace import WorkspaceToolLimits, WorkspaceTools
from app.agents.limits import AgentLimits
from app.agents.providers import ProviderPool
from app.agents.runner import Runner
from app.approvals.service import ApprovalService
from app.artifacts.chain import Chainer
from app.artifacts.decisions import ArtifactDecisions
from app.artifacts.service import ArtifactService
from app.base.cursors import CursorSigner
from app.base.egress import KEEPALIVE_CONNECTIONS
from app.base.egress_policy import EgressPolicy, Lookups
from app.base.errors import Unavailable
from app.base.ids import new_id
from app.base.json.process_pool import JsonProcessPool
from app.base.metrics import Metrics
from app.base.postgres.database import Connect, Database, connect_session, open_database
from app.base.postgres.health import HealthMonitor
from app.base.postgres.listener import Listener
from app.base.public_url import PublicUrl
from app.base.schema.checker import SchemaChecker
from app.base.sealing import Sealer, derive_key
from app.base.shares import TenantShares
from app.base.watchdog import LoopWatchdog, WatchdogLimits
from app.calls.dispatch import CallDispatcher, DispatchLimits
from app.calls.tool_calls import ToolCalls, build_call_path
from app.catalog.service import SourceService
from app.catalog.sessions import SourceSessions
from app.deployment import Deployment, child_greeting, open_blobs
from app.documents.models import DocumentLimits
from app.documents.service import DocumentService, purge_forgotten
from app.engine.children import ChildCommand, ChildLimits, ChildProcesses
from app.engine.ending import QueryEndings
from app.engine.processes import ProcessLocks, ProcessRecord
from app.engine.promotions import Promotions
from app.engine.usage_sums import UsageSums
from app.engine.worker import PeriodicTask, Worker, WorkerLimits
from app.journal.ended_work import work_counter
from app.journal.hub import Hub
from app.journal.limits import StreamLimits
from app.journal.models import parse_query_key
from app.journal.streams import Streams
from app.journal.writer import JournalWriter
from app.llm.client import STREAMS_PER_SLOT, ModelBounds, ModelTraffic
from app.plans.host import HostPlanService
from app.plans.service import PlanService
from app.plans.toolkit import PlanTools
from app.queries.deletion import DeletionLimits, Deletions
from app.queries.profiles import ProfileStarter, SourceProfiler
from app.queries.service import QueryService
from app.references.service import ReferenceService
from app.runtimes.checks import Environment
from app.runtimes.service import Runtimes
from app.runtimes.signing import SigningSecrets
from app.settings import Settings
from app.telemetry.service import Exporter, SpanReporter
from app.tenancy import idempotency
from app.tenancy.api_context import ApiContext
from app.tenancy.secrets import Secrets
from app.tenancy.service import Tenancy
from app.tenancy.sessions import Sessions
from app.tenancy.unknown_keys import UnknownKeyBounds, UnknownKeys
from app.tools.claims import ClaimLimits, ClientCalls
from app.tools.ledger import CallLedger
from app.tools.models import Sender
from app.tools.notifications import CallNotifications
from app.tools.transports.http import HttpSender
from app.tools.transports.mcp.pinning import McpPinning
from app.tools.transports.mcp.sender import McpSender
from app.tools.transports.python import PythonSender, installed_functions
from app.variables.service import VariableService
from app.workspace.models import WorkspaceLimits
from app.workspace.service import Workspaces


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Everything of a process, wired. `start` and `aclose` bracket its life."""

    db: Database
    api: ApiContext
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
    call_notifications: CallNotifications
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
    periodic_tasks: tuple[PeriodicTask, ...]
    sweeps: tuple[PeriodicTask, ...]
    health: HealthMonitor
    promotions: Promotions

    async def start(self) -> None:
        self.watchdog.start()
        if self.spans is not None:
            self.spans.start()
        self.journal.start()
        self.streams.start()
        self.listener.start()
        with contextlib.suppress(Unavailable):  # they are loaded at the first turn then
            await self.providers.load_vendors(await self.runtimes.used_vendors())
        await self.worker.start(self.periodic_tasks, self.sweeps)
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
        self.call_notifications.close()
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


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureLimits:
    """The limits of features that no setting changes. Tests pass lower ones."""

    agents: AgentLimits = field(default_factory=AgentLimits)
    children: ChildLimits = field(default_factory=ChildLimits)
    claims: ClaimLimits = field(default_factory=ClaimLimits)
    deletions: DeletionLimits = field(default_factory=DeletionLimits)
    dispatch: DispatchLimits = field(default_factory=DispatchLimits)
    documents: DocumentLimits = field(default_factory=DocumentLimits)
    streams: StreamLimits = field(default_factory=StreamLimits)
    worker_tick_s: float = 1.0
    workspace_tools: WorkspaceToolLimits = field(default_factory=WorkspaceToolLimits)
    workspaces: WorkspaceLimits = field(default_factory=WorkspaceLimits)


def exporter_of(settings: Settings, metrics: Metrics) -> Callable[[], Exporter] | None:
    """Return a function that builds the exporter of spans, or None if none is configured. Its SDK is
    imported only then."""
    endpoint = settings.otlp_endpoint
    if not endpoint:  # an empty variable is none, as OpenTelemetry says
        return None

    def build() -> Exporter:
        built: Exporter = importlib.import_module("app.telemetry.otel").build(endpoint, metrics)
        return built

    return build


def assemble(
    settings: Settings,
    site: Deployment,
    *,
    with_worker: bool = True,
    exporter: Callable[[], Exporter] | None = None,
    child_id: str | None = None,
    child_argv: Sequence[str] = (),
    limits: FeatureLimits | None = None,
    connect: Connect = connect_session,
) -> Services:
    """Wire the services of a process. Nothing connects or runs before `start`.

    Args:
        exporter: builds where spans go, in the place of what the settings name.
        child_id: this is a child process, under the id by which its parent registered it.
        child_argv: the command that starts child processes; without it this process starts none.
        limits: the limits of features that no setting changes.
        connect: opens the connections of the pool.
    """
    limits = limits or FeatureLimits()
    metrics = Metrics()
    db = open_database(site.dsn, size=settings.pool_size, metrics=metrics, connect=connect)
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
        limits=limits.streams,
    )
    sealer = Sealer(derive_key(site.master, "secrets"))
    key_bounds = UnknownKeyBounds(
        settings.unknown_keys, settings.unknown_key_s, settings.unknown_keys_per_client_per_s
    )
    tenancy = Tenancy(db, sealer, UnknownKeys(key_bounds, metrics), settings.cell)
    sessions = Sessions(db, tenancy, settings.session_s)
    public_url = None if settings.public_url is None else PublicUrl.parse(settings.public_url)
    tenant_secrets = Secrets(db, sealer)
    schemas, processes = SchemaChecker(), JsonProcessPool()
    lookups = Lookups(settings.dns_lookups, settings.tenant_dns_lookups, on_wait=metrics.dns_wait.observe)
    egress = EgressPolicy.from_hosts(settings.allow_hosts, resolver=lookups)
    points = installed_functions()
    runtimes = Runtimes(db, Environment(egress, frozenset(points), settings.provider_envs), processes)
    signing = SigningSecrets(sealer)
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
        tenant_secrets,
        egress,
        settings.provider_envs,
        local=site.is_local,
        traffic=traffic,
        aws_tenants=settings.aws_tenants,
        calls_models=slots > 0,
    )
    references = ReferenceService(db, tenancy, schemas, processes)
    calls = CallLedger(db, references.hydrate, origin, signing)
    build = exporter or exporter_of(settings, metrics)
    mcp = McpSender(egress, tenant_secrets)
    senders: dict[str, Sender] = {
        "http": HttpSender(egress, tenant_secrets, signing, traced=build is not None),
        "mcp": mcp,
        "python": PythonSender(points),
    }
    dispatch = CallDispatcher(calls, senders, settings.lease_s, metrics, limits.dispatch)
    call_notifications = CallNotifications()
    workspaces = Workspaces(
        db, open_blobs(site.blobs), limits.workspaces, is_elsewhere=runtimes.has_client_workspace
    )
    chainer = Chainer(derive_key(site.master, "artifacts"))
    artifacts = ArtifactService(db, workspaces, chainer)
    decisions = ArtifactDecisions(artifacts, chainer)
    deletions = Deletions(db, artifacts, limits.deletions)
    documents = DocumentService(schemas, processes, limits.documents)
    source_paths = tuple(settings.source_paths)
    sources = SourceService(SourceSessions(db, tenant_secrets, egress, source_paths), source_paths)
    variables = VariableService(references, documents, schemas, artifacts, processes)
    plans = PlanService(db, references, runtimes, schemas, variables, artifacts, processes)
    approvals = ApprovalService(db, runtimes, schemas, plans.on_gate_closed)
    plan_tools = PlanTools(plans, approvals, references, dispatch)
    reference_tools = ReferenceTools(references)
    file_sources = FileSources(artifacts, references)
    client_files = ClientWorkspace(dispatch, workspaces, file_sources)
    toolkits = {
        "call_agent": agents.call_agent,
        RESOLVE: reference_tools.resolve,
        "glimpseRef": reference_tools.glimpse,
        "storePlan": plan_tools.store,
        "getPlan": plan_tools.get,
        "executePlan": plan_tools.execute,
        **client_files.verbs(WorkspaceTools(workspaces, file_sources, limits.workspace_tools).verbs()),
        **ArtifactTools(artifacts, decisions, client_files).verbs(),
        **MemoryTools(documents, variables).verbs(),
        **CatalogTools(sources, references).verbs(),
    }
    # In this order: a plan asks what became of the offers of its actions.
    end_hooks = (calls.withdraw_of_query, plans.end_of_query, approvals.cancel_of_query)
    call_path = build_call_path(toolkits, approvals, dispatch, references, schemas, variables, processes)
    runner = Runner(
        db,
        journal,
        runtimes,
        providers,
        ToolCalls(call_path),
        {"plan": plan_tools.execute_for_host, "profile": SourceProfiler(sources).run},
        end_hooks,
        schemas,
        variables,
        artifacts,
        references,
        limits.agents,
    )
    locks = None if site.postgres is None else ProcessLocks(site.postgres.data_dir / "processes")
    process = ProcessRecord(db, origin, settings.lease_s, locks=locks, is_child=child_id is not None)
    promotions = Promotions(db, synchronous=settings.synchronous_standby)
    db.on_promotion(promotions.check_soon)
    worker = Worker(
        db,
        process,
        runner.advance,
        WorkerLimits(slots, settings.lease_s, limits.worker_tick_s),
        claims=child_id is None,
        promotions=promotions,
    )
    children = None
    if child_argv and with_worker:
        children = ChildProcesses(
            db,
            origin,
            ChildCommand(child_argv, child_greeting(settings, site)),
            replace(
                limits.children,
                processes=settings.child_processes,
                memory_bytes=settings.child_memory_mb * 1024 * 1024,
            ),
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
        sender, _, names = payload.partition("|")
        if sender != origin:
            if names == "*":
                streams.poll_soon()
            else:
                hub.invalidate([parse_query_key(name) for name in names.split(",")])

    def gap() -> None:
        streams.poll_soon()
        call_notifications.wake_all()
        worker.wake_all()

    channels = {
        "plangate_journal": journal_hint,
        "plangate_wake": worker.on_notify,
        "plangate_calls": call_notifications.on_notify,
    }
    listener = Listener(site.listen_dsn, channels, gap, db.accept_connection)
    db.on_promotion(streams.rewind)
    return Services(
        db=db,
        api=ApiContext(db, tenancy, signer, public_url=public_url),
        hub=hub,
        journal=journal,
        streams=streams,
        listener=listener,
        worker=worker,
        children=children,
        tenancy=tenancy,
        sessions=sessions,
        cors_origins=tuple(settings.cors_origins),
        secrets=tenant_secrets,
        runtimes=runtimes,
        providers=providers,
        queries=queries,
        approvals=approvals,
        references=references,
        documents=documents,
        sources=sources,
        profiles=ProfileStarter(sources, runtimes, queries),
        signing=signing,
        mcp_pinning=McpPinning(mcp, TenantShares(settings.mcp_lists, settings.tenant_mcp_lists), metrics),
        calls=calls,
        dispatch=dispatch,
        client_calls=ClientCalls(references.hydrate, limits.claims),
        call_notifications=call_notifications,
        plans=plans,
        host_plans=HostPlanService(db, plans, queries),
        schemas=schemas,
        metrics=metrics,
        lookups=lookups,
        metrics_token=settings.metrics_token,
        watchdog=LoopWatchdog(metrics, WatchdogLimits(settings.loop_blocked_ms / 1000)),
        spans=spans,
        workspaces=workspaces,
        artifacts=artifacts,
        artifact_decisions=decisions,
        deletions=deletions,
        chainer=chainer,
        periodic_tasks=(
            endings.finish_due,
            endings.repair_stranded,
            approvals.expire_due,
            calls.lapse_due,
            UsageSums(db).add_ended,
            deletions.finish_due,
        ),
        sweeps=(
            queries.fail_due_limits,
            references.sweep,
            partial(purge_forgotten, db),
            workspaces.collect,
            lambda: idempotency.sweep(db),
            sessions.sweep,
        ),
        health=HealthMonitor(db),
        promotions=promotions,
    )
