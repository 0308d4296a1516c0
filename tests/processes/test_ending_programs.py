"""Client programs that end by a signal, a cancellation, an exit, normally, and by kill -9.

Calls that have not begun are released, those that run are finished, and of those that cannot be finished the tool's
`replay` says what becomes of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import plangate
import pytest
from plangate.client import ServiceClient

from tests.processes.ending_program import TENANT, system
from tests.support.service import ROOT, Service, folder, plain_environment, serving

PATIENCE_S = 20.0
"""Less than the 30 s of a claim's lease: what comes within it did not wait for the lease to end."""
LOST_S = 8.0
"""More than closing takes once nothing is waited for: a post for what is cut off, 3 s at most."""
DEFECTS = ("never retrieved", "never awaited", "was destroyed", "Exception ignored", "ResourceWarning")


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with folder() as at, serving(at) as running:
        yield running


class Program:
    """tests/processes/ending_program.py, in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    @contextlib.asynccontextmanager
    async def running(cls, service: Service, *arguments: str, **environment: str) -> AsyncIterator[Program]:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-X", "dev", "-m", "tests.processes.ending_program", *arguments),
            cwd=ROOT,
            env={
                **plain_environment(),
                "PLANGATE_URL": service.url,
                "PLANGATE_API_KEY": service.key,
                **environment,
            },
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            yield cls(process)
        finally:
            if process.returncode is None:
                process.kill()
                await process.communicate()

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    async def says(self, *lines: str) -> None:
        """Waits until it has said these next, in any order."""
        assert self._process.stdout is not None
        said = []
        async with asyncio.timeout(PATIENCE_S):
            while len(said) < len(lines):
                line = (await self._process.stdout.readline()).decode().strip()
                assert line, (said, await self._complaints())
                said.append(line)
        assert sorted(said) == sorted(lines)

    async def _complaints(self) -> str:
        assert self._process.stderr is not None
        return (await self._process.stderr.read()).decode()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def tell(self) -> None:
        """The line that it waits for."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")

    async def interrupted_again(self) -> None:
        """Presses Ctrl-C once more, and again where Python lost it, as a person would who sees nothing happen.

        Python drops an exception that a weak reference's callback or a finalizer raises, and a KeyboardInterrupt
        is raised wherever the program is. Ending takes less than `LOST_S`: one that was heard is not repeated.
        """
        while self.alive:
            self.signal(signal.SIGINT)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), LOST_S)

    async def ended(self, *, quietly: bool = True) -> int:
        """Its exit code; what it complained of has nothing that the library is to blame for."""
        async with asyncio.timeout(PATIENCE_S):
            _, complained = await self._process.communicate()
        found = [word for word in DEFECTS if word in complained.decode()]
        assert not (found and quietly), complained.decode()
        assert self._process.returncode is not None
        return self._process.returncode


class Calls:
    """Queries that call one tool each, by a runtime that serves nothing itself."""

    def __init__(self, service: Service, runtime: plangate.Runtime) -> None:
        self._service = service
        self._runtime = runtime
        self._asked: dict[str, Any] = {}

    async def of(self, *names: str) -> None:
        for name in names:
            events = self._runtime.run_specialist("solo", {"tool": name, "args": {}})
            self._asked[name] = (await anext(events))["queryId"]
            await events.aclose()

    async def outcome(self, name: str) -> Any:
        """The result of the call, or the code of its error."""
        async with asyncio.timeout(PATIENCE_S):
            async for event in self._runtime.query(None, None, resume=self._asked[name]):
                if event["type"] == "tool-invocation" and event["state"] != "call":
                    return event["result"] if event["state"] == "result" else event["error"]["code"]
        raise AssertionError(f"the call of {name} has no outcome")

    async def status(self, name: str) -> str:
        client = ServiceClient(self._service.url, self._service.key, TENANT)
        try:
            listed = await client.request("GET", "/tool-calls", params={"queryId": self._asked[name]})
            (call,) = listed["items"]
            return str(call["status"])
        finally:
            await client.aclose()


@pytest.fixture
async def calls(service: Service) -> AsyncIterator[Calls]:
    async with plangate.create_runtime(
        system(lambda name: None).wire, url=service.url, api_key=service.key
    ) as runtime:
        yield Calls(service, runtime)


def next_program(service: Service) -> plangate.Runtime:
    """Another process that serves the same tools, for which this one stands in."""
    return plangate.create_runtime(
        system(lambda name: lambda args, ctx: "by the next"), url=service.url, api_key=service.key
    )


ENDINGS = {
    "end": ("end", None, 0),
    "exit": ("exit", None, 3),
    "cancel": ("cancel", None, 1),
    "ctrl-c": ("signal", signal.SIGINT, -signal.SIGINT),
    "sigterm": ("sigterm", signal.SIGTERM, 0),
}


IN_TEST = ("end", "sigterm")
"""The endings of `make test`; `make test-long` runs the others."""


@pytest.mark.parametrize(
    "ending",
    [name if name in IN_TEST else pytest.param(name, marks=pytest.mark.long) for name in ENDINGS],
)
async def test_running_calls_finish_or_are_handed_over(service: Service, calls: Calls, ending: str) -> None:
    how, number, code = ENDINGS[ending]
    running = ("soon", "soon_in_a_thread", "stuck_safe", "stuck_never")
    async with Program.running(service, how, "4") as program:
        await program.says("open")
        await calls.of(*running)
        await program.says(*(f"begun {name}" for name in running))
        program.signal(number) if number else program.tell()
        await program.says("closing")
        assert await program.ended() == code
    async with next_program(service):
        assert [await calls.outcome(name) for name in running] == [
            "by the one that ended",
            "by the one that ended",
            "by the next",
            "outcome_unknown",
        ]


@pytest.mark.long
async def test_a_second_ctrl_c_ends_the_waiting(service: Service, calls: Calls) -> None:
    """It would wait for a minute."""
    async with Program.running(service, "signal", "60") as program:
        await program.says("open")
        await calls.of("stuck_safe", "stuck_never")
        await program.says("begun stuck_safe", "begun stuck_never")
        program.signal(signal.SIGINT)
        await program.says("closing")
        await program.interrupted_again()
        # Python raises it wherever the program is, so that a connection may be left open.
        assert await program.ended(quietly=False) == -signal.SIGINT
    async with next_program(service):
        assert await calls.outcome("stuck_safe") == "by the next"
        assert await calls.outcome("stuck_never") == "outcome_unknown"


async def test_claimed_calls_that_have_not_started_are_returned(service: Service, calls: Calls) -> None:
    """Also of a tool that may not be repeated: nothing was done."""
    async with Program.running(service, "claimed") as program:
        await program.says("open")
        await calls.of("soon")
        await program.says("claimed")
        program.signal(signal.SIGINT)
        await program.says("closing")
        assert await program.ended() == -signal.SIGINT
    assert await calls.status("soon") == "open"
    async with next_program(service):
        assert await calls.outcome("soon") == "by the next"


async def test_a_stuck_thread_keeps_its_program_but_not_its_call(
    service: Service, calls: Calls, tmp_path: Path
) -> None:
    let_go = tmp_path / "let-go"
    async with Program.running(service, "signal", "0.5", LET_GO=str(let_go)) as program:
        await program.says("open")
        await calls.of("stubborn_thread")
        await program.says("begun stubborn_thread")
        program.signal(signal.SIGINT)
        await program.says("closing")
        async with next_program(service):
            assert await calls.outcome("stubborn_thread") == "by the next"
        assert program.alive
        let_go.touch()
        assert await program.ended() == -signal.SIGINT


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_claims_of_a_killed_program_expire(
    service: Service, calls: Calls, number: signal.Signals
) -> None:
    """So they do by a SIGTERM that the program says nothing about: Python then ends at once."""
    async with Program.running(service, "signal") as program:
        await program.says("open")
        await calls.of("short_safe", "short_never")
        await program.says("begun short_safe", "begun short_never")
        program.signal(number)
        assert await program.ended() == -number
    assert await calls.status("short_never") in ("claimed", "unknown")
    async with next_program(service):
        assert await calls.outcome("short_safe") == "by the next"
        assert await calls.outcome("short_never") == "outcome_unknown"
