"""`python -m examples.flight_recovery`: the demo, from the command line to the exit code.

Exit codes: 0 the plan was carried out, 1 it was not, 2 the command line cannot be used.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
import uuid
from datetime import date
from pathlib import Path
from typing import Any

import httpx
from plangate import PlangateError, Runtime, create_runtime
from rich.console import Console

from examples.flight_recovery import ask, script
from examples.flight_recovery.data import YEAR, DataMissing, data_folder
from examples.flight_recovery.ledger import Ledger
from examples.flight_recovery.render import Screen, key_from_file
from examples.flight_recovery.service import Target
from examples.flight_recovery.system import STANDARD_AMOUNT, define

DAY = date(2013, 3, 8)
LIMIT_MINUTES = 120
MODEL = "claude-sonnet-4-5"
DATA_DIR = Path(__file__).resolve().parents[2] / ".data" / "demo"
LOOK_PORT = 8711
WIDTH = 100

EXECUTED, NOT_EXECUTED, USAGE = 0, 1, 2


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    if not options.yes and not sys.stdin.isatty():
        return _stop(
            "A person has to approve the plan, and there is no terminal to ask at: add --yes.", USAGE
        )
    try:
        data_folder()
        options.data_dir.mkdir(mode=0o711, parents=True, exist_ok=True)
        logging.basicConfig(filename=options.data_dir / "demo.log", level=logging.WARNING)
        return asyncio.run(Demo(options).run())
    except (DataMissing, PlangateError, httpx.HTTPError) as error:
        return _stop(str(error))
    except OSError as error:
        return _stop(f"{error}. Is the place writable? Choose another one with --data-dir.")
    except KeyboardInterrupt:
        return _stop("\nStopped. What nobody approved is not carried out.")


class Demo:
    """One run: a query to the coordinator, the gate, the dispatch, and what came of it."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.scripted = not os.environ.get("ANTHROPIC_API_KEY")
        self.console = Console(highlight=False)
        if not self.console.is_terminal:
            self.console.width = WIDTH
        self.screen = Screen(self.console, scripted=self.scripted)
        self.ledger = Ledger(options.data_dir / "operations.sqlite")
        self.target = Target(options.url, options.data_dir, options.tenant)

    async def run(self) -> int:
        options = self.options
        self._introduce()
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

    def _introduce(self) -> None:
        say, options = self.screen.line, self.options
        say(
            "demo", f"departures from New York on {options.day}, {options.limit_minutes} minutes late or more"
        )
        if self.scripted:
            say("model", "none, as ANTHROPIC_API_KEY is not set: agents follow scripts, all else is the same")
        else:
            say("model", options.model)
        say("data", str(_short(options.data_dir)))

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
        decision: ask.Decision = ask.APPROVED
        if not self.options.yes:
            decision = await ask.decide(self.console, scripted=self.scripted)
        await runtime.respond_to_approval(
            approval["id"], decision.word, decision.feedback, digest=approval["digest"]
        )

    async def _conclude(self, runtime: Runtime) -> int:
        """Says what the service has on record, and how to look at it."""
        seen, options = self.screen.seen, self.options
        plan = await runtime.get_plan(seen.plan_id) if seen.plan_id else {}
        actions = await runtime.plan_actions(seen.plan_id) if seen.plan_id else []
        totals = self.ledger.totals(action["idempotencyKey"] for action in actions)
        self.screen.end(actions, totals, _short(self.ledger.path), None if self.scripted else options.model)
        if options.url:
            self.screen.look(runtime.url, "$PLANGATE_API_KEY", tenant=options.tenant)
        else:
            plangate, data = _short(Path(sys.executable).parent / "plangate"), _short(options.data_dir)
            self.screen.look(
                f"http://127.0.0.1:{LOOK_PORT}",
                key_from_file(data / "local-key"),
                tenant=options.tenant,
                serve=f"{plangate} serve --data-dir {data} --port {LOOK_PORT}",
            )
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
    add("--model", default=MODEL, metavar="ID", help="the model to ask, if there is a key (%(default)s)")
    add("--data-dir", type=_path, default=DATA_DIR, metavar="DIR", help="database, key, ledger (.data/demo)")
    add("--url", help="a service that runs already; its key is read from PLANGATE_API_KEY")
    add("--tenant", default="local", metavar="ID", help="the tenant of that key (%(default)s)")
    options = parser.parse_args(arguments)
    if options.url and not os.environ.get("PLANGATE_API_KEY"):
        parser.error("--url needs the service's key in PLANGATE_API_KEY")
    return options


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


def _path(text: str) -> Path:
    return Path(text).expanduser().absolute()


def _short(path: Path) -> Path:
    """Relative to where the person is, where it is below."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _stop(message: str, code: int = NOT_EXECUTED) -> int:
    print(message, file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
