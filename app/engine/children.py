"""Child processes for suspects: queries that were in flight as processes died (docs/decisions/0019).

A suspect runs in a child process, so that it can end nothing but that one, and so that its death names the culprit: a child
that died while it ran one query was ended by that query. With more suspects than children may run, several share a child;
if that one dies, they are split over smaller groups. A query that survives its child is no suspect any more.

Parent and child talk over a socket that is the child's standard input, one JSON object a line:

    parent to child   {"settings": ..., "site": ..., ...}  once; {"claims": [...]}; {"stop": true}
    child to parent   {"running": [query ids], "taken": messages with claims so far}  often; {"stopped": true}
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

from app.base.errors import Unavailable
from app.base.ids import new_id
from app.base.logs.structured import structlog
from app.base.postgres.database import Database
from app.engine import lease_store
from app.engine.models import Culprit

log = structlog.get_logger(__name__)

TICK_S: Final = 1.0
STOP_S: Final = 5.0
LAST_WORDS_S: Final = 1.0
FATAL_DEATHS: Final = 3
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
MAX_LINE_BYTES: Final = 16 * 1024 * 1024
HERE: Final = str(Path(__file__).resolve().parents[2])


@dataclass(frozen=True, slots=True)
class ChildLimits:
    """`processes`: how many children run at once. `memory_bytes`: a child that holds more is ended, as is a child that
    sends nothing for `silent_s` seconds, or `ready_s` after its start. `watch_interval_s`: between two such checks."""

    processes: int = 8
    memory_bytes: int = 1024 * 1024 * 1024
    watch_interval_s: float = 0.2
    silent_s: float = 60.0
    ready_s: float = 60.0


@dataclass(frozen=True, slots=True)
class ChildCommand:
    """The command that starts a child process, and the first line that is sent to it."""

    argv: Sequence[str]
    greeting: Mapping[str, Any]


@dataclass(slots=True, eq=False)
class ChildProcess:
    """A running child process. `running`: the queries that it works on, as far as its parent knows."""

    id: str
    process: Process
    writer: asyncio.StreamWriter
    running: set[str] = field(default_factory=set)
    ran: set[str] = field(default_factory=set)  # every query that it was ever assigned
    share: int | None = None  # the smallest company that one of its queries may run in
    claims_sent: int = 0  # messages with claims
    ready: bool = False
    stopping: bool = False
    has_stopped: bool = False
    silent_s: float = 0.0  # that this process watched: while it stands still itself, it hears nobody

    def send(self, message: Mapping[str, Any]) -> None:
        with contextlib.suppress(OSError):
            self.writer.write(orjson.dumps(message) + b"\n")

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            self.process.kill()

    def room(self) -> float:
        """Return how many more queries may join."""
        return math.inf if self.share is None else self.share - len(self.ran)


class ChildProcesses:
    """Starts child processes while suspects wait, gives them their queries, and sees how they end."""

    def __init__(
        self,
        db: Database,
        parent_id: str,
        command: ChildCommand,
        limits: ChildLimits,
        lease_s: float,
    ) -> None:
        self._db = db
        self._parent_id = parent_id
        self._command = command
        self._limits = limits
        self._lease_s = lease_s
        self._children: dict[str, ChildProcess] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._starting = 0
        self._failed_starts = 0
        self._next_start_s = 0.0  # of the loop's clock
        self._supervisor: asyncio.Task[None] | None = None
        self._hint = asyncio.Event()
        self._assigning = asyncio.Lock()

    @property
    def count(self) -> int:
        """Return the number of running children."""
        return len(self._children) + self._starting

    def start(self) -> None:
        self._supervisor = asyncio.create_task(self._supervise(), name="child-processes")

    def notify(self) -> None:
        """Look for suspects now rather than within a second."""
        self._hint.set()

    def stop_starting(self) -> None:
        """Give out no more queries; those that run in children continue until `aclose`."""
        if self._supervisor is not None:
            self._supervisor.cancel()

    async def aclose(self) -> None:
        """Ask every child to stop, and end those that do not within a few seconds."""
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.gather(self._supervisor, return_exceptions=True)
        for child in self._children.values():
            self._stop(child)
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=STOP_S)
            for child in self._children.values():
                child.kill()
            if late:
                await asyncio.wait(late, timeout=STOP_S)

    # -- starting and assigning ------------------------------------------------------------------------------

    async def _supervise(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await self._hint.wait()
            self._hint.clear()
            try:
                await self._place_suspects()
            except Unavailable:
                continue
            except Exception:
                log.exception("children.supervision_failed")

    async def _place_suspects(self) -> None:
        """Start children for the suspects that wait; where no more may run, add the suspects to those that do."""
        for culprit in await lease_store.culprits(self._db, fatal_deaths=FATAL_DEATHS):
            await self._set_aside(culprit)
        waiting = await lease_store.count_suspects(self._db)
        free_children = [c for c in self._children.values() if not c.running and not c.stopping]
        idle_children = [c for c in free_children if c.ready]
        for child in idle_children:
            if child.ran or not waiting:  # what a query left behind would count against the next one
                self._stop(child)
        if not waiting:
            return
        idle_children = [c for c in idle_children if not c.stopping]
        free_children = [c for c in free_children if not c.stopping]
        coming = self._starting + len(free_children)  # before anything is awaited: each child is in one state
        free = self._limits.processes - self.count
        for child in idle_children:
            await self._assign(child)
        if asyncio.get_running_loop().time() < self._next_start_s:
            return  # the last start failed
        for _ in range(max(0, min(free, waiting - coming))):
            self._starting += 1
            task = asyncio.create_task(self._run(), name="child-process")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if free <= 0 and not coming:
            fitting = [c for c in self._children.values() if c.ready and not c.stopping and c.room() >= 1]
            for n, child in enumerate(sorted(fitting, key=lambda c: len(c.running))):
                await self._assign(child, among=len(fitting) - n)

    async def _assign(self, child: ChildProcess, among: int | None = None) -> None:
        """Claim this child's part of the suspects that wait, and hand it over. `among`: how many children share them;
        by default those that may still be started, and those that run nothing."""
        async with self._assigning:
            waiting = await lease_store.count_suspects(self._db)
            if among is None:
                among = self._limits.processes - sum(bool(c.running) for c in self._children.values())
            limit = min(math.ceil(waiting / max(1, among)), child.room())
            if not limit:
                return
            claims = await lease_store.claim(
                self._db,
                owner=child.id,
                limit=int(limit),
                lease_s=self._lease_s,
                suspects=True,
                company=len(child.ran),
            )
            if not claims:
                return
            if child.id not in self._children:  # it ended meanwhile, and its end is on record
                leases = [(c.tenant, c.query_id, c.epoch) for c in claims]
                await lease_store.release(self._db, owner=child.id, leases=leases)
                return
            child.running.update(c.query_id for c in claims)
            child.ran.update(child.running)
            shares = (child.share, *(c.share for c in claims))
            child.share = min((s for s in shares if s is not None), default=None)
            child.claims_sent += 1
            child.send({"claims": [asdict(c) for c in claims]})
        log.warning("child.assigned", process_id=child.id, count=len(claims))

    async def _set_aside(self, culprit: Culprit) -> None:
        """Mark a query to be ended because at least three processes died while they worked on it."""
        async with self._db.transaction(culprit.tenant) as tx:
            await lease_store.mark_for_ending(
                tx,
                query_id=culprit.query_id,
                epoch=culprit.epoch,
                code="poisoned",
                message=_set_aside_message(culprit),
            )
        log.warning("query.set_aside", query_id=culprit.query_id)
        self._db.metrics.queries_set_aside.inc()

    # -- one child -------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Run a child from its start to the record of its end."""
        try:
            child, reader = await self._start_child()
        except Exception:
            log.exception("child.start_failed")
            self._back_off()
            return
        finally:
            self._starting -= 1
        watch = asyncio.create_task(self._watch(child), name="child-watch")
        listening = asyncio.create_task(self._listen(child, reader), name="child-messages")
        try:
            await child.process.wait()  # a process that the child started may hold the socket open for longer
            await asyncio.wait([listening], timeout=LAST_WORDS_S)
        finally:
            watch.cancel()
            listening.cancel()
            if child.process.returncode is None:
                child.kill()
                await child.process.wait()
            child.writer.close()
            del self._children[child.id]
            await self._record_end(child)
        if child.ready:
            self._failed_starts = 0
            self.notify()
        elif not child.stopping:
            log.error("child.never_ready", process_id=child.id)
            self._back_off()

    def _back_off(self) -> None:
        """Start no child for a while after one could not be started."""
        self._failed_starts = min(self._failed_starts + 1, 6)
        self._next_start_s = asyncio.get_running_loop().time() + 0.5 * 2**self._failed_starts

    async def _start_child(self) -> tuple[ChildProcess, asyncio.StreamReader]:
        ours, theirs = socket.socketpair()
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command.argv,
                stdin=theirs.fileno(),
                stdout=asyncio.subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join([HERE, *filter(None, sys.path)])},
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        writer: asyncio.StreamWriter | None = None
        try:
            reader, writer = await asyncio.open_connection(sock=ours, limit=MAX_LINE_BYTES)
            child = ChildProcess(new_id("prc_"), process, writer)
            await lease_store.register_process(
                self._db,
                id=child.id,
                parent_id=self._parent_id,
                host=socket.gethostname()[:255],
                pid=process.pid,
                holds_lock=False,
            )
        except BaseException:
            (writer or ours).close()
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            raise
        self._children[child.id] = child
        child.send({**self._command.greeting, "id": child.id, "parentPid": os.getpid()})
        log.warning("child.started", process_id=child.id)
        return child, reader

    async def _listen(self, child: ChildProcess, reader: asyncio.StreamReader) -> None:
        """Read the messages of the child until it closes the socket."""
        with contextlib.suppress(OSError, ValueError):
            while line := await reader.readline():
                message = orjson.loads(line)
                child.silent_s = 0.0
                if "stopped" in message:
                    child.has_stopped = True
                    return
                first, child.ready = not child.ready, True
                # A list that was made before the last claims arrived says nothing about them.
                left = (
                    child.running.difference(message["running"])
                    if message["taken"] == child.claims_sent
                    else set()
                )
                child.running -= left
                if not child.running:
                    child.share = None
                if (first or left) and not child.stopping:
                    self.notify()

    async def _watch(self, child: ChildProcess) -> None:
        """End a child that holds too much memory, or that has been silent for a minute."""
        while True:
            await asyncio.sleep(self._limits.watch_interval_s)
            child.silent_s += self._limits.watch_interval_s
            if _memory_bytes(child.process.pid) > self._limits.memory_bytes:
                log.warning("child.memory_exceeded", process_id=child.id)
                child.kill()
                return
            if child.silent_s > (self._limits.silent_s if child.ready else self._limits.ready_s):
                log.warning("child.silent", process_id=child.id)
                child.kill()
                return

    def _stop(self, child: ChildProcess) -> None:
        child.stopping = True
        child.send({"stop": True})

    async def _record_end(self, child: ChildProcess) -> None:
        """Record how a child ended, through outages. A child that was not asked to stop, and did not report
        its stop, has died."""
        died = not (child.stopping or child.has_stopped)
        if died:
            log.warning("child.died", process_id=child.id, count=len(child.running))
            self._db.metrics.child_deaths.inc()
        while True:
            try:
                await lease_store.end_process(
                    self._db,
                    id=child.id,
                    reason="died" if died else "stopped",
                    lease_s=self._lease_s,
                    queries=len(child.ran),
                )
            except Unavailable:
                await asyncio.sleep(TICK_S)
            except Exception:
                log.exception("child.end_not_recorded", process_id=child.id)
                await asyncio.sleep(TICK_S)
            else:
                return


def _set_aside_message(culprit: Culprit) -> str:
    alone = "the last of them" if culprit.own_deaths == 1 else f"the last {culprit.own_deaths} of them"
    return (
        f"This query was set aside: {culprit.deaths + culprit.own_deaths} processes in a row ended while they worked on it, "
        f"{alone} while working on nothing else."
    )


def _memory_bytes(pid: int) -> int:
    """Return the resident memory of a process; 0 where the system does not tell."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]) * PAGE_BYTES
    except (OSError, IndexError):
        return 0
