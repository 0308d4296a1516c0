"""The database stalls for longer than a lease, several times, while one healthy process works on long queries."""

from __future__ import annotations

import time
from dataclasses import dataclass

from tests.storm.database import check_innocent, first_moves
from tests.storm.figures import Figures
from tests.storm.house import deadly_model, frozen, house_with, postgres_processes, submit_talks


@dataclass(frozen=True, slots=True)
class Size:
    queries: int
    stalls: int
    stall_s: float
    between_s: float
    lease_s: float


FULL = Size(queries=10, stalls=3, stall_s=15, between_s=8, lease_s=10)
SMALL = Size(queries=3, stalls=2, stall_s=1.6, between_s=0.7, lease_s=1)


def run(figures: Figures, size: Size = FULL) -> None:
    turn_s = size.stalls * (size.stall_s + size.between_s)  # no turn can end before the last stall begins
    with deadly_model(0.1) as model, house_with(model, lease_s=size.lease_s) as house:
        queries = submit_talks(house, model, size.queries, turn_s)
        for _ in range(size.stalls):
            with frozen(postgres_processes(house)):
                time.sleep(size.stall_s)
            over = time.time()
            time.sleep(size.between_s)
        check_innocent(house, figures, turn_s + 60)
        moved = first_moves(house, queries, over)
        slowest = max(moved.values()) - over if len(moved) == len(queries) else None
        figures.at_most("all queries move again after the last stall (P3)", slowest, 30, "s")
        dead = house.sql(
            "SELECT count(*)::int AS n FROM processes WHERE end_reason IN ('died', 'presumed_dead')"
        )
        figures.exactly("processes that count as dead", dead[0]["n"], 0)
