"""Run the graph form: as a query to agents, or for a host that stores and executes plans."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Sequence
from typing import Any

from plangate import DefinedRuntime, Runtime, create_runtime

from examples.common.command import EXECUTED, short
from examples.common.render import Screen
from examples.flight_recovery.demo import Demo, QueryRequest
from examples.flight_recovery.graph import script
from examples.flight_recovery.graph.render import GraphScreen
from examples.flight_recovery.graph.system import NAME, define


class GraphDemo(Demo):
    """The same day as a plan whose actions hand values on."""

    def create_screen(self) -> Screen:
        return GraphScreen(self.console, scripted=self.scripted)

    def define_runtime(self) -> DefinedRuntime:
        options = self.options
        return define(self.ledger, tenant=options.tenant, model=options.model, scripted=self.scripted)

    def build_request(self, amount: str) -> QueryRequest:
        inputs = {"day": self.options.day.isoformat(), "limit_minutes": self.options.limit_minutes}
        return QueryRequest(
            script.as_script("recovery", amount) if self.scripted else script.IN_WORDS, inputs
        )

    async def describe_writes(self, runtime: Runtime, actions: Sequence[dict[str, Any]]) -> dict[str, str]:
        told = await super().describe_writes(runtime, actions)
        if not self.screen.seen.state_of:
            return told
        held = (await runtime.thread_state(self.screen.seen.state_of))["document"]
        sizes = ", ".join(f"†state.{name} {_size(value):,} bytes" for name, value in held.items())
        told["state"] = f"{sizes}; the flights in it are in no prompt and in no event"
        if "summary" in held:
            told["summary"] = json.dumps(held["summary"], ensure_ascii=False)
        return told

    async def serve(self) -> int:
        """Keep a service and what carries the actions out, until it is interrupted."""
        self.target.choose()
        interrupted = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, interrupted.set)
        async with create_runtime(self.define_runtime(), url=self.options.url) as runtime:
            self.screen.line("serves", f"the runtime {NAME}: Ctrl-C ends it")
            if self.options.url is None:
                key = short(self.target.key_file)
                self.console.print(
                    f"\nIn another terminal:\n  API={runtime.url}\n  KEY=$(cat {key})", soft_wrap=True
                )
            await interrupted.wait()
        return EXECUTED


def _size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())
