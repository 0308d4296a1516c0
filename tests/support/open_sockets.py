"""Fail the test that leaves a TCP socket open. Otherwise, the garbage collector warns later and names no test.

A test must close the sockets that this process opened for it. Those of a module's fixture, and the connections to its
server, may stay open until the module ends; those of a session's fixture until the session ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import stat
import tracemalloc
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

CLOSE_WITHIN_S = 2.0
LOOK_EVERY_S = 0.01
FILE_DESCRIPTORS = "/dev/fd"


@dataclass(frozen=True, slots=True)
class OpenSocket:
    """A TCP socket of this process. No two have the same inode; file descriptors are used again."""

    inode: int
    fd: int = field(compare=False)
    address: str = field(compare=False)
    peer: str = field(compare=False)

    def __str__(self) -> str:
        return f"file descriptor {self.fd}, address {self.address}, peer {self.peer or 'none'}"


class OpenSocketCheck:
    """A pytest plugin that looks for new open sockets after each test. `loop` is the one that the tests share."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self._session = set[OpenSocket]()
        self._module = set[OpenSocket]()
        self._first_seen: dict[OpenSocket, str] = {}
        self._other_inodes = set[int]()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        if fixturedef.scope == "function":
            return (yield)
        before = self._open()
        try:
            return (yield)
        finally:
            (self._session if fixturedef.scope == "session" else self._module).update(self._open() - before)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        try:
            result = yield
        except BaseException:
            self._session |= self._open()  # the test has failed already
            raise
        module_ends = nextitem is None or nextitem.path != item.path
        if module_ends:
            self._module.clear()
        left = self._left_open()
        for one in self._open() - self._session:
            self._first_seen.setdefault(one, item.nodeid)
        if left:
            self._session |= left  # one test fails for it, not every later one
            message = "\n".join(f"left open: {one} ({self._first_seen[one]})" for one in left)
            pytest.fail("\n".join([message, *_holders(left, self.loop)]), pytrace=False)
        if module_ends:
            self._first_seen.clear()
        return result

    async def wait_until_closed(self) -> None:
        """Give transports the rounds of the loop in which they close, and peers the time to leave."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_WITHIN_S):
                while self._unexpected():  # noqa: ASYNC110 - no event says that a socket closed
                    await asyncio.sleep(LOOK_EVERY_S)

    def _left_open(self) -> set[OpenSocket]:
        """Return the sockets that should be closed by now."""
        if self._unexpected() and self.loop is not None and not self.loop.is_closed():
            self.loop.run_until_complete(self.wait_until_closed())
        return self._unexpected()

    def _unexpected(self) -> set[OpenSocket]:
        expected = self._session | self._module
        servers = {one.address for one in expected if not one.peer}
        now = self._open()
        new = {one for one in now - expected if one.address not in servers and one.peer not in servers}
        # The client of a fixture connects again where its server has closed an idle connection.
        connections = Counter(one.peer for one in now)
        allowed = Counter(one.peer for one in expected if one.peer)
        return {one for one in new if connections[one.peer] > allowed[one.peer]}

    def _open(self) -> set[OpenSocket]:
        """Return the open TCP sockets of this process."""
        found = set()
        for name in os.listdir(FILE_DESCRIPTORS):
            fd = int(name)
            try:
                status = os.fstat(fd)
                if stat.S_ISSOCK(status.st_mode) and status.st_ino not in self._other_inodes:
                    with socket.socket(fileno=os.dup(fd)) as copy:
                        if (
                            copy.family in (socket.AF_INET, socket.AF_INET6)
                            and copy.type == socket.SOCK_STREAM
                        ):
                            address, peer = _address(copy.getsockname), _address(copy.getpeername)
                            found.add(OpenSocket(status.st_ino, fd, address, peer))
                        else:
                            self._other_inodes.add(status.st_ino)
            except OSError:
                continue  # closed meanwhile, as the descriptor of the listing is
        return found


def _address(lookup: Callable[[], Any]) -> str:
    """Return the address of one end, "" for an end that has none."""
    try:
        host, port = lookup()[:2]
    except OSError:
        return ""
    return f"{host}:{port}"


def _holders(left: Iterable[OpenSocket], loop: asyncio.AbstractEventLoop | None) -> Iterator[str]:
    """Say what has these sockets: transports, sockets, and where the loop's unfinished tasks stand."""
    numbers = {one.fd for one in left}
    for thing in gc.get_objects():
        if isinstance(thing, socket.socket) and thing.fileno() in numbers:
            yield f"held by {thing!r}{_allocated_at(thing)}"
        elif isinstance(thing, asyncio.Transport):
            of = thing.get_extra_info("socket")
            if of is not None and of.fileno() in numbers:
                yield f"held by {thing!r}{_allocated_at(thing)}"
    if loop is not None and not loop.is_closed():
        for task in asyncio.all_tasks(loop):
            for frame in task.get_stack():
                yield f"unfinished: {task.get_coro()!r} at {frame.f_code.co_filename}:{frame.f_lineno}"


def _allocated_at(thing: object) -> str:
    """Return where it was made; known under PYTHONTRACEMALLOC=20."""
    trace = tracemalloc.get_object_traceback(thing)
    return "".join(f"\n  {line}" for line in trace.format()) if trace else ""
