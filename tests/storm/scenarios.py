"""The scenarios, at the size of `make storm` and at that of `make test`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tests.storm import (
    half_open,
    killer,
    kills,
    one_request,
    stalled_database,
    stalled_readers,
    stranded_plan,
    suspects,
)
from tests.storm.figures import Figures


@dataclass(frozen=True, slots=True)
class Scenario:
    """`full` and `small` run it and fill the figures."""

    name: str
    full: Callable[[Figures], None]
    small: Callable[[Figures], None]


ALL = (
    Scenario(
        "stalled-database",
        partial(stalled_database.run, size=stalled_database.FULL),
        partial(stalled_database.run, size=stalled_database.SMALL),
    ),
    Scenario("rapid-kills", partial(kills.run, size=kills.RAPID), partial(kills.run, size=kills.SMALL_RAPID)),
    Scenario(
        "suspects", partial(suspects.run, size=suspects.FULL), partial(suspects.run, size=suspects.SMALL)
    ),
    Scenario("killer-query", partial(killer.run, size=killer.FULL), partial(killer.run, size=killer.SMALL)),
    Scenario(
        "stranded-plan",
        partial(stranded_plan.run, size=stranded_plan.FULL),
        partial(stranded_plan.run, size=stranded_plan.SMALL),
    ),
    Scenario(
        "one-request",
        partial(one_request.run, size=one_request.FULL),
        partial(one_request.run, size=one_request.SMALL),
    ),
    Scenario(
        "stalled-readers",
        partial(stalled_readers.run, size=stalled_readers.FULL),
        partial(stalled_readers.run, size=stalled_readers.SMALL),
    ),
    Scenario(
        "half-open-sockets",
        partial(half_open.run, size=half_open.FULL),
        partial(half_open.run, size=half_open.SMALL),
    ),
    Scenario(
        "random-kills", partial(kills.run, size=kills.RANDOM), partial(kills.run, size=kills.SMALL_RANDOM)
    ),
)
BY_NAME = {scenario.name: scenario for scenario in ALL}
