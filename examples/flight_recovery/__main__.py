"""`python -m examples.flight_recovery`: the demo, from the command line to the exit code.

Exit codes: 0 the plan was carried out, 1 it was not, 2 the command line cannot be used.
"""

from __future__ import annotations

import argparse
import sys
import uuid
from datetime import date
from typing import Any

from plangate import Runtime, create_runtime

from examples.common import ask, command
from examples.common.command import EXECUTED, NOT_EXECUTED, short
from examples.common.service import Target
from examples.flight_recovery import script
from examples.flight_recovery.data import YEAR, DataMissing, data_folder
from examples.flight_recovery.ledger import Ledger
from examples.flight_recovery.render import FlightScreen
from examples.flight_recovery.system import STANDARD_AMOUNT, define

DAY = date(2013, 3, 8)
LIMIT_MINUTES = 120
ANOTHER_AMOUNT = ask.Revising("another amount for the standard voucher, such as 50.00: ", script.amount_in)


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    try:
        data_folder()
    except DataMissing as error:
        return command.stop(str(error))
    return command.run(lambda: Demo(options).run(), options)


class Demo:
    """One run: a query to the coordinator, the gate, the dispatch, and what came of it."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.scripted = command.scripted()
        self.console = command.terminal()
        self.screen = FlightScreen(self.console, scripted=self.scripted)
        self.ledger = Ledger(options.data_dir / "operations.sqlite")
        self.target = Target(options.url, options.data_dir, options.tenant)

    async def run(self) -> int:
        options = self.options
        what = f"departures from New York on {options.day}, {options.limit_minutes} minutes late or more"
        command.introduce(self.screen, options, what)
        self.target.choose()
        defined = define(
            self.ledger,
            tenant=options.tenant,
            model=options.model,
            limit_minutes=options.limit_minutes,
            scripted=self.scripted,
        )
        async with create_runtime(defined, url=options.url) as runtime:
            self.screen.line("service", f"{runtime.url}, runtime {runtime.id} version {runtime.version}")
            self.console.print()
            await self._recover(runtime)
            return await self._conclude(runtime)

    async def _recover(self, runtime: Runtime) -> None:
        """The query, and without a model another one for each revision that is asked for."""
        options, seen = self.options, self.screen.seen
        thread, amount = f"flight-recovery-{uuid.uuid4().hex[:12]}", STANDARD_AMOUNT
        while True:
            prompt = script.in_words(options.day, options.limit_minutes)
            if self.scripted:
                prompt = script.as_script(options.day, options.limit_minutes, "recovery", amount)
            seen.decision = ""
            async for event in runtime.query(prompt, thread):
                self.screen.show(event)
                if event["type"] == "approval-required":
                    await self._decide(runtime, event["data"])
            revised = script.amount_in(seen.feedback) if seen.decision == "revise" else None
            if not (self.scripted and revised):
                return
            amount = revised

    async def _decide(self, runtime: Runtime, approval: dict[str, Any]) -> None:
        """Shows what the approval is about, asks, and decides about exactly that."""
        self.screen.gate(approval, await self.target.subject(runtime.url, approval))
        decision = ask.APPROVED
        if not self.options.yes:
            revising = ANOTHER_AMOUNT if self.scripted else ask.Revising()
            decision = await ask.decide(self.console, revising)
        await runtime.respond_to_approval(
            approval["id"], decision.word, decision.feedback, digest=approval["digest"]
        )

    async def _conclude(self, runtime: Runtime) -> int:
        """Says what the service has on record, and how to look at it."""
        seen, options = self.screen.seen, self.options
        plan = await runtime.get_plan(seen.plan_id) if seen.plan_id else {}
        actions = await runtime.plan_actions(seen.plan_id) if seen.plan_id else []
        totals = self.ledger.totals(action["idempotencyKey"] for action in actions)
        written = ", ".join(f"{rows} {table}" for table, rows in totals.items())
        wrote = f"{written} of this plan in {short(self.ledger.path)}" if any(totals.values()) else ""
        self.screen.end(actions, ("ledger", wrote), None if self.scripted else options.model)
        command.look(self.screen, options, runtime)
        if plan.get("status") == "executed":
            return EXECUTED
        self.console.print("\nThe plan was not carried out.", style="bold")
        return NOT_EXECUTED


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m examples.flight_recovery",
        description="Agents plan vouchers for a day of late departures, you approve, the plan is carried out once.",
        epilog="With ANTHROPIC_API_KEY set the agents ask a model; without it they follow scripts.",
    )
    add = parser.add_argument
    add("--yes", action="store_true", help="approve without asking")
    add("--day", type=_day, default=DAY, metavar="DATE", help=f"a day of {YEAR} (%(default)s)")
    add(
        "--limit-minutes",
        type=_minutes,
        default=LIMIT_MINUTES,
        metavar="N",
        help="how late is late (%(default)s)",
    )
    command.add_options(parser, data_dir="demo", keeps="database, key, ledger")
    return command.parse(parser, arguments)


def _day(text: str) -> date:
    day = date.fromisoformat(text)
    if day.year != YEAR:
        raise argparse.ArgumentTypeError(f"the flights are those of {YEAR}")
    return day


def _minutes(text: str) -> int:
    minutes = int(text)
    if not 1 <= minutes <= 1440:
        raise argparse.ArgumentTypeError("1 to 1440")
    return minutes


if __name__ == "__main__":
    sys.exit(main())
