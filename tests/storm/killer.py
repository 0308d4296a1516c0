"""A query that kills its process every time, beside innocent ones."""

from __future__ import annotations

from dataclasses import dataclass

from tests.processes.acceptance import specs
from tests.storm.database import check_innocent
from tests.storm.figures import Figures
from tests.storm.house import Supervisor, deadly_model, house_with, submit_talks
from tests.storm.stranded_plan import code_of, wait_for


@dataclass(frozen=True, slots=True)
class Size:
    innocent: int
    turn_s: float
    lease_s: float
    patience_s: float


FULL = Size(innocent=8, turn_s=20, lease_s=10, patience_s=180)
SMALL = Size(innocent=2, turn_s=3, lease_s=2, patience_s=60)


def run(figures: Figures, size: Size = FULL) -> None:
    with deadly_model(0.1) as model, house_with(model, lease_s=size.lease_s) as house:
        submit_talks(house, model, size.innocent, size.turn_s)
        with Supervisor(house) as supervisor:
            runtime = house.register(specs.talker("talk-killer", model.provider("openai")))
            query = house.submit(runtime, model.fatal_prompt(), agent="talker")
            ended = wait_for(house, f"/queries/{query}", lambda q: bool(q["endedAt"]), size.patience_s)
            figures.exactly("its end", code_of(ended), "poisoned")
            figures.exactly("processes that it killed", len(model.killed), 3)
            services = set(model.killed) & set(supervisor.deaths)
            figures.at_most("services among them", len(services), 2, "processes")
            check_innocent(house, figures, size.patience_s, [query])
            message = (ended.get("error") or {}).get("message") or ""
            figures.exactly("its message names the three deaths", "three" in message or "3" in message, True)
            print(f"  {figures.scenario}: {message}", flush=True)
            figures.exactly("kills after it was set aside", len(model.killed) - 3, 0)
