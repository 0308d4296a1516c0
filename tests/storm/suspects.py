"""Two deaths of a process with long model calls in flight: all queries run again soon."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from tests.processes.acceptance.house import House
from tests.storm.database import attempts, check_innocent
from tests.storm.figures import Figures
from tests.storm.house import deadly_model, house_with, restart_and_time, submit_talks

RESTART_S, READY_S = 15.0, 2.0


@dataclass(frozen=True, slots=True)
class Size:
    """`counts` are numbers of queries in flight; the figures are required of those up to 16."""

    counts: tuple[int, ...]
    turn_s: float
    lease_s: float


FULL = Size(counts=(5, 16, 64), turn_s=20, lease_s=10)
SMALL = Size(counts=(3,), turn_s=4, lease_s=2)


def run(figures: Figures, size: Size = FULL) -> None:
    for count in size.counts:
        with deadly_model(0.25) as model, house_with(model, lease_s=size.lease_s) as house:
            queries = submit_talks(house, model, count, size.turn_s)
            began, ready = restart_and_time(house)
            running = wait_for_attempts(house, queries, began)
            figure(
                figures,
                f"{count} queries run again after a first death, from ready",
                running,
                ready,
                READY_S,
                count,
            )
            began, ready = restart_and_time(house)
            running = wait_for_attempts(house, queries, began)
            figure(figures, f"{count} suspects run again, from the restart", running, began, RESTART_S, count)
            figures.publish(f"{count} suspects run again, from ready", _last(running, ready), "s")
            check_innocent(house, figures, 10 * size.turn_s + 60)
            ended = house.sql("SELECT max(ended_at) AS at FROM queries")[0]["at"]
            figures.publish(
                f"{count} suspects have all ended, from the restart", ended.timestamp() - began, "s"
            )


def wait_for_attempts(house: House, queries: Sequence[str], since: float) -> list[float] | None:
    """Return when each query began a further attempt, or None if that took more than four minutes."""
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        found = attempts(house, queries)
        if len(found) == len(queries) and min(found.values()) > since:
            return list(found.values())
        time.sleep(0.2)
    return None


def figure(
    figures: Figures, name: str, running: list[float] | None, since: float, most_s: float, count: int
) -> None:
    if count <= 16:
        figures.at_most(name, _last(running, since), most_s, "s")
    else:
        figures.publish(name, _last(running, since), "s")


def _last(running: list[float] | None, since: float) -> float | None:
    return None if running is None else max(running) - since
