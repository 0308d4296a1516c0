"""Functions of the operator that hang do not affect the service."""

from __future__ import annotations

import subprocess
import sys

HANGING = """
import asyncio
import threading

from plangate.spec.transports import PythonTransport

from app.tools.models import Attempt, OutcomeUnknown, OutgoingCall
from app.tools.transports.python import PythonSender


class Point:
    def load(self):
        return lambda args, ctx: threading.Event().wait()


async def main():
    sender = PythonSender({"hang": Point()})
    transport = PythonTransport(entry_point="hang")
    call = OutgoingCall("wrk_1", "qry_1", "tool", "add", "", b"{}", "never", 10, transport, "key")
    attempt = Attempt("acme", "default", call, {"args": {}, "context": {}}, 1, lambda: True)
    for _ in range(40):  # more than the pool of an event loop has threads
        try:
            await sender.send(attempt)
        except OutcomeUnknown as error:
            message = str(error)
    print(message, await asyncio.to_thread(lambda: "the service goes on"))


asyncio.run(main())
"""


def test_functions_do_not_block_threads_or_shutdown_of_the_service() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stdout == "it did not return within 0.01 s. the service goes on\n"
