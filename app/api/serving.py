"""Long-running processes: the API with its worker, and the worker alone."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import signal
import socket
import sys
from collections.abc import Coroutine, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
import uvloop

from app.api.admission import AdmissionBounds, parse_networks
from app.api.connections import ConnectionLimits, Connections, bound_send_buffer
from app.api.console_link import listening_url, print_console_link
from app.api.http import create_app, create_operations_app
from app.api.open_files import backlog, connection_bound, raise_open_files, reserved_files
from app.api.process import is_loopback, stop_requested
from app.assembly import Services, assemble
from app.base import embedded_postgres
from app.base.errors import Unavailable
from app.base.logs.processors import Throttle
from app.base.logs.structured import structlog
from app.deployment import Deployment
from app.llm.client import STREAMS_PER_SLOT
from app.settings import Settings

log = structlog.get_logger(__name__)

CHILD_ARGV = (sys.executable, "-P", "-m", "app.api.child_process")
KEEP_POSTGRES_EVERY_S = 2.0
DRAIN_S = 5.0
REFUSING_S = 1.0
"""How long a process answers every request with a 503 after its drain time, before its listener closes."""


def serve(settings: Settings, site: Deployment, key_file: Path | None, *, with_worker: bool) -> None:
    """Serve the API until a signal, and work on queries. `key_file` has the operator's key of this machine."""
    bounds = admission_bounds(settings)
    services = assemble(settings, site, with_worker=with_worker, child_argv=CHILD_ARGV)
    connections = Connections(connection_limits(settings), services.metrics, bounds)
    listening = _listen(settings.host, settings.port, backlog=bounds.backlog)
    bound_send_buffer(listening, connections.limits)
    config = connections.configure(create_app(services), timeout_graceful_shutdown=4, lifespan="on")
    _print_address(listening, key_file)
    _notify_data_location(site)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        operator_key = None if key_file is None else key_file.read_text().strip()
        server = _Server(config, services, drain_seconds(settings), operator_key)
        freeze_startup_objects()
        runner.run(_run_beside_database(site, services, server.serve(sockets=[listening])))
        # only cleanup is left: ignore further signals
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def freeze_startup_objects() -> None:
    """Keep the garbage collector from looking at modules, models and routes again and again. They stay until the end, and
    a full collection takes 0.1 s with them, in the middle of whatever the event loop does."""
    gc.collect()
    gc.freeze()


def admission_bounds(settings: Settings) -> AdmissionBounds:
    """Raise the limit on open files, and return what it and the settings allow clients to send."""
    limit = raise_open_files()
    model_streams = settings.model_streams or settings.slots * STREAMS_PER_SLOT
    reserve = reserved_files(limit, model_streams, settings.pool_size)
    most = connection_bound(limit, reserve, settings.max_connections)
    per_peer = settings.max_connections_per_peer
    return AdmissionBounds(
        most,
        max(1, most // 2) if per_peer is None else per_peer,
        parse_networks(settings.trusted_proxies),
        settings.head_timeout_s,
        settings.max_head_bytes,
        settings.body_timeout_s,
        settings.body_min_bytes_per_s,
        backlog(reserve),
    )


def connection_limits(settings: Settings) -> ConnectionLimits:
    """Return how many bytes a connection may buffer for a client that reads slowly."""
    return ConnectionLimits(settings.reader_bytes, settings.stalled_reader_s)


async def _run_beside_database(site: Deployment, services: Services, work: Coroutine[Any, Any, None]) -> None:
    """Run the work of the process, and restart the embedded Postgres if it ends."""
    keeper = asyncio.create_task(_keep_postgres(site, services), name="keep-postgres")
    try:
        await work
    finally:
        keeper.cancel()


async def _keep_postgres(site: Deployment, services: Services) -> None:
    if site.postgres is None:
        return
    cannot = Throttle()
    while True:
        await asyncio.sleep(KEEP_POSTGRES_EVERY_S)
        try:
            await services.db.ping()
        except Unavailable:
            try:
                again = await asyncio.to_thread(embedded_postgres.start, site.postgres.data_dir, create=False)
                await asyncio.to_thread(again.release)  # this process counts as a user already
                log.warning("postgres.restarted")
                cannot.reset()
            except embedded_postgres.EmbeddedPostgresError as error:
                if cannot.allow():
                    log.error("postgres.cannot_start", error=error)


def drain_seconds(settings: Settings) -> float:
    """Return how long the process serves after /readyz changes and before the listener closes. The default is 0 on a
    loopback address: no load balancer probes it, and Ctrl-C should be immediate."""
    if settings.drain_s is not None:
        return settings.drain_s
    return 0.0 if is_loopback(settings.host) else DRAIN_S


class _Server(uvicorn.Server):
    """Drains after a signal, and ends open streams between events before it waits for connections to close."""

    def __init__(
        self, config: uvicorn.Config, services: Services, drain_s: float, operator_key: str | None
    ) -> None:
        super().__init__(config)
        self._operator_key = operator_key
        self._services = services
        self._drain_s = drain_s
        self._drain_over = drain_s == 0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._operator_key is not None and sockets and sys.stdout.isatty():
            # At a terminal only: a file or a log never gets one.
            await print_console_link(self._services, self._operator_key, listening_url(sockets[0]))

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        with super().capture_signals():
            self.should_exit = stop_requested.is_set()
            yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Start the drain on the first signal, end it on the second. A further SIGINT ends the process at once."""
        if self.should_exit and not self._drain_over:
            self._drain_over = True
        else:
            super().handle_exit(sig, frame)

    async def main_loop(self) -> None:
        await super().main_loop()
        self._services.health.draining = True
        self._services.stop_starting()
        if not self._drain_over:
            await self._drain()

    async def _drain(self) -> None:
        """Keep serving while load balancers see the change of /readyz, then refuse requests for a moment, so that a proxy
        that does not probe passes them on and learns to leave this process out. Each response closes its connection, so
        that no proxy sends a request over a connection that is about to be closed."""
        log.info("service.draining")
        self.config.encoded_headers.append((b"connection", b"close"))
        await self._tick(self._drain_s)
        self._services.health.refusing = True
        self._end_streams()
        await self._tick(REFUSING_S)
        self._drain_over = True

    async def _tick(self, seconds: float) -> None:
        """Let the server run this long, or until the drain is ended."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + seconds
        while not self._drain_over and loop.time() < ends:
            await self.on_tick(0)  # writes the headers that every response gets
            await asyncio.sleep(0.1)

    def _end_streams(self) -> None:
        self._services.streams.drain()
        self._services.call_notifications.close()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._end_streams()
        await super().shutdown(sockets)


class _OperationsServer(uvicorn.Server):
    """Beside a worker, which hears signals itself."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _listen(host: str, port: int, setting: str = "--port", backlog: int = 2048) -> socket.socket:
    """Return a socket that listens at the address. `setting` names what chooses another port, for the error."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        hint = f"Is another Plangate running? Choose another {setting}."
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            hint = (
                "PLANGATE_HOST, or --host, is to be an address of this machine, such as 127.0.0.1 or 0.0.0.0."
            )
        raise SystemExit(f"Cannot listen on {host}:{port} ({error.strerror}). {hint}") from error
    listening.listen(backlog)
    listening.setblocking(False)
    return listening


def _print_address(listening: socket.socket, key_file: Path | None) -> None:
    print(f"Plangate listens on {listening_url(listening)}", flush=True)  # noqa: T201 - for the person who started it
    if key_file is not None:
        print(f"The operator's key of this machine is in {key_file}", flush=True)  # noqa: T201


def _notify_data_location(site: Deployment) -> None:
    """Print where root's database is when the account that runs Postgres cannot reach the data directory."""
    postgres = site.postgres
    if postgres is not None and postgres.home != postgres.data_dir:
        print(  # noqa: T201 - for the person who started it
            f"The database is in {postgres.home}: {postgres.account_name}, which runs Postgres, cannot reach "
            f"{postgres.data_dir}",
            flush=True,
        )


def run_worker(settings: Settings, site: Deployment) -> None:
    """Work on queries until a signal."""
    bounds = admission_bounds(settings)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        services = assemble(settings, site, child_argv=CHILD_ARGV)
        connections = Connections(connection_limits(settings), services.metrics, bounds)
        listening = None
        if settings.worker_port is not None:
            listening = _listen(settings.host, settings.worker_port, "PLANGATE_WORKER_PORT", bounds.backlog)
            bound_send_buffer(listening, connections.limits)
        freeze_startup_objects()
        runner.run(_run_beside_database(site, services, _run_worker(site, services, connections, listening)))


async def _run_worker(
    site: Deployment, services: Services, connections: Connections, listening: socket.socket | None
) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    if stop_requested.is_set():
        stop.set()
    await services.start()
    print("Plangate worker runs", flush=True)  # noqa: T201 - for the person who started it
    _notify_data_location(site)
    operations = None
    if listening is not None:
        config = connections.configure(create_operations_app(services), lifespan="off")
        operations = asyncio.create_task(_OperationsServer(config).serve([listening]), name="operations")
        host, port = listening.getsockname()[:2]
        print(f"Its numbers are on http://{host}:{port}/metrics", flush=True)  # noqa: T201
    await stop.wait()
    if operations is not None:
        operations.cancel()
        await asyncio.wait([operations])
    await services.aclose()
