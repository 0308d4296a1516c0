"""`make storm`: every scenario at full size, and a table of bounds and measurements.

python -m tests.storm [--write] [SCENARIO ...]
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path

from bench import machine, report
from tests.storm import scenarios
from tests.storm.figures import Figure, Figures, failures, table
from tests.storm.scenarios import Scenario

PAGE = Path(__file__).resolve().parents[2] / "docs" / "performance.md"
STOP_AFTER_S = 60 * 60


def main() -> int:
    """Run the scenarios, print the table, and return 1 if a figure does not hold."""
    asked = argparse.ArgumentParser(prog="make storm", description=__doc__)
    asked.add_argument("names", nargs="*", metavar="SCENARIO", help="; ".join(scenarios.BY_NAME))
    asked.add_argument("--small", action="store_true", help="the size of `make test`")
    asked.add_argument("--write", action="store_true", help="put the table into docs/performance.md")
    given = asked.parse_args()
    unknown = set(given.names) - set(scenarios.BY_NAME)
    if unknown:
        asked.error(f"unknown scenario {', '.join(sorted(unknown))}; expected {', '.join(scenarios.BY_NAME)}")
    chosen = [s for s in scenarios.ALL if not given.names or s.name in given.names]
    stop_after(STOP_AFTER_S)
    began, rows = time.monotonic(), list[Figure]()
    for scenario in chosen:
        rows += run(scenario, small=given.small)
    about = f"{len(chosen)} scenarios in {(time.monotonic() - began) / 60:.1f} minutes on {machine.kind()}."
    text = f"{about}\n\n{table(rows)}"
    print(text)
    failed = failures(rows)
    if given.write and not failed:
        report.write(PAGE, text, "storm")
    print(f"\nmake storm: {len(failed)} figures FAILED" if failed else "\nmake storm: every figure holds")
    return 1 if failed else 0


def run(scenario: Scenario, *, small: bool) -> list[Figure]:
    """Run one scenario; an error of any kind is a figure that does not hold."""
    figures, began = Figures(scenario.name), time.monotonic()
    print(f"{scenario.name} ...", flush=True)
    try:
        (scenario.small if small else scenario.full)(figures)
    except Exception as error:
        traceback.print_exc()
        figures.fail("the scenario ran to its end", f"{type(error).__name__}: {error}"[:300])
    for row in figures.rows:
        print(f"  {row.verdict}: {row.name}: {row.measured}", flush=True)
    print(f"  ({time.monotonic() - began:.0f} s)", flush=True)
    return figures.rows


def stop_after(seconds: float) -> None:
    """End this process after so long, as an interrupt does: houses are closed on the way out."""
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    timer.daemon = True
    timer.start()


if __name__ == "__main__":
    sys.exit(main())
