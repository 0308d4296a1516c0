"""One run of the demo: a query to the coordinator, the gate, the dispatch, and what came of it."""

from __future__ import annotations

import argparse
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from plangate import DefinedRuntime, Runtime, create_runtime

from examples.common import ask, command
from examples.common.command import EXECUTED, NOT_EXECUTED, short
from examples.common.render import Screen
from examples.common.service import Target
from examples.flight_recovery import script
from examples.flight_recovery.ledger import Ledger
from examples.flight_recovery.render import FlightScreen
from examples.flight_recovery.system import STANDARD_AMOUNT, define

ANOTHER_AMOUNT = ask.RevisionChoice(
    "another amount for the standard voucher, such as 50.00: ", script.amount_in
)


@dataclass(frozen=True, slots=True)
class QueryRequest:
    """The parameters of a query."""

    prompt: str
    inputs: dict[str, Any] | None = None


class Demo:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.scripted = command.uses_script()
        self.console = command.terminal()
        self.screen = self.create_screen()
        self.ledger = Ledger(options.data_dir / "operations.sqlite")
        self.target = Target(options.url, options.data_dir, options.tenant)

    # -- what another form of the demo says in its own way ---------------------------------------------------

    def create_screen(self) -> Screen:
        return FlightScreen(self.console, scripted=self.scripted)

    def define_runtime(self) -> DefinedRuntime:
        options = self.options
        return define(
            self.ledger,
            tenant=options.tenant,
            model=options.model,
            limit_minutes=options.limit_minutes,
            scripted=self.scripted,
        )

    def build_request(self, amount: str) -> QueryRequest:
        """Return what the coordinator is asked; `amount` is what a script says of the standard voucher."""
        day, limit = self.options.day, self.options.limit_minutes
        if self.scripted:
            return QueryRequest(script.as_script(day, limit, "recovery", amount))
        return QueryRequest(script.in_words(day, limit))

    async def describe_writes(self, runtime: Runtime, actions: Sequence[dict[str, Any]]) -> dict[str, str]:
        """By where it is: what the actions wrote."""
        totals = self.ledger.totals(action["idempotencyKey"] for action in actions)
        written = ", ".join(f"{rows} {table}" for table, rows in totals.items() if rows)
        return {"ledger": f"{written} of this plan in {short(self.ledger.path)}"} if written else {}

    # -- the run ---------------------------------------------------------------------------------------------

    async def run(self) -> int:
        options = self.options
        what = f"departures from New York on {options.day}, {options.limit_minutes} minutes late or more"
        command.introduce(self.screen, options, what)
        self.target.choose()
        async with create_runtime(self.define_runtime(), url=options.url) as runtime:
            self.screen.line("service", f"{runtime.url}, runtime {runtime.id} version {runtime.version}")
            await command.link_console(self.screen, options, self.target, runtime.url)
            self.console.print()
            await self._recover(runtime)
            code = await self._conclude(runtime)
            await command.stay(self.screen, options)
            return code

    async def _recover(self, runtime: Runtime) -> None:
        """Run the query, and without a model another one for each revision that is requested."""
        seen = self.screen.seen
        thread, amount = f"flight-recovery-{uuid.uuid4().hex[:12]}", STANDARD_AMOUNT
        while True:
            asked = self.build_request(amount)
            seen.decision = ""
            async for event in runtime.query(asked.prompt, thread, asked.inputs):
                self.screen.show(event)
                if event["type"] == "approval-required":
                    await self._decide(runtime, event["data"])
            revised = script.amount_in(seen.feedback) if seen.decision == "revise" else None
            if not (self.scripted and revised):
                return
            amount = revised

    async def _decide(self, runtime: Runtime, approval: dict[str, Any]) -> None:
        """Show what the approval is about, ask, and decide about exactly that."""
        subject = await runtime.approval_subject(approval["id"])
        self.screen.gate(approval, subject.value)
        if self.options.console:
            self.console.print("Decide in the console: approve, send back or reject.", style="bold yellow")
            return
        decision = ask.APPROVED
        if not self.options.yes:
            revising = ANOTHER_AMOUNT if self.scripted else ask.RevisionChoice()
            decision = await ask.decide(self.console, revising)
        await runtime.respond_to_approval(
            approval["id"], decision.word, decision.feedback, digest=subject.digest
        )

    async def _conclude(self, runtime: Runtime) -> int:
        """Says what the service has on record, and how to look at it."""
        seen, options = self.screen.seen, self.options
        plan = await runtime.get_plan(seen.plan_id) if seen.plan_id else {}
        actions = await runtime.plan_actions(seen.plan_id) if seen.plan_id else []
        wrote = await self.describe_writes(runtime, actions)
        self.screen.end(actions, wrote, None if self.scripted else options.model)
        command.look(self.screen, options, runtime)
        if plan.get("status") == "executed":
            return EXECUTED
        self.console.print(f"\n{command.not_executed(seen)}", style="bold")
        return NOT_EXECUTED
