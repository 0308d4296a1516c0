"""`python -m examples.flight_recovery`: the demo, from the command line to the exit code.

Exit codes: 0 the plan was carried out, 1 it was not, 2 the command line cannot be used.
"""

from __future__ import annotations

import argparse
import sys
from datetime import date

from examples.common import command
from examples.flight_recovery.data import YEAR, DataMissing, data_folder
from examples.flight_recovery.demo import Demo
from examples.flight_recovery.graph.demo import GraphDemo

DAY = date(2013, 3, 8)
LIMIT_MINUTES = 120


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    try:
        data_folder()
    except DataMissing as error:
        return command.stop(str(error))
    if options.serve:
        return command.run(lambda: GraphDemo(options).serve(), options, asks=False)
    return command.run(lambda: (GraphDemo if options.graph else Demo)(options).run(), options)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m examples.flight_recovery",
        description="Agents plan vouchers for a day of late departures, you approve, the plan is carried out once.",
        epilog="With ANTHROPIC_API_KEY set the agents ask a model; without it they follow scripts.",
    )
    add = parser.add_argument
    add("--yes", action="store_true", help="approve without asking")
    add("--graph", action="store_true", help="the plan is a graph whose actions hand values on")
    add("--serve", action="store_true", help="with --graph: ask no agent, carry out what a host executes")
    add("--day", type=_day, default=DAY, metavar="DATE", help=f"a day of {YEAR} (%(default)s)")
    add(
        "--limit-minutes",
        type=_minutes,
        default=LIMIT_MINUTES,
        metavar="N",
        help="how late is late (%(default)s)",
    )
    command.add_console(parser)
    command.add_options(parser, data_dir="demo", keeps="database, key, ledger")
    options = command.parse(parser, arguments)
    if options.serve and not options.graph:
        parser.error("--serve goes with --graph")
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


if __name__ == "__main__":
    sys.exit(main())
