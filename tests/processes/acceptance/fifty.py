"""A plan of 50 actions that fans out and in again, and the expected state of its run."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from dataclasses import dataclass
from typing import Any

from tests.processes.acceptance.house import House, Ledger
from tests.processes.acceptance.reader import Reader
from tests.processes.acceptance.receiver import Receiver
from tests.processes.acceptance.specs import MODEL, TENANT
from tests.processes.acceptance.user_process import carried_out

NUMBERS = {"type": "array", "items": {"type": "integer"}}
SUMS = {
    "type": "object",
    "properties": {
        "actions": {
            "type": "array",
            "items": {
                "oneOf": [
                    {
                        "type": "object",
                        "properties": {
                            "kind": {"const": "add"},
                            "numbers": NUMBERS,
                            "name": {"type": "string"},
                        },
                        "required": ["kind", "numbers"],
                        "additionalProperties": False,
                    },
                    {
                        "type": "object",
                        "properties": {"kind": {"const": "fail"}, "fails": {"type": "string"}},
                        "required": ["kind", "fails"],
                        "additionalProperties": False,
                    },
                ],
                "discriminator": {"propertyName": "kind"},
            },
        }
    },
    "required": ["actions"],
}


def spec(dispatcher: dict[str, Any]) -> dict[str, Any]:
    """A runtime whose plans are carried out by `dispatcher`."""
    common = {"model": MODEL, "plan": "Sums"}
    return {
        "name": f"sums-{dispatcher['kind']}-{dispatcher['replay']}",
        "tenant": TENANT,
        "interpreter": "scripted",
        "agents": [
            {
                "name": "boss",
                "role": "coordinator",
                "model": MODEL,
                "routes": ["planner", "doer"],
                "systemPrompt": ".",
            },
            {"name": "planner", "role": "planner", "systemPrompt": "You plan.", **common},
            {"name": "doer", "role": "executor", "systemPrompt": "You do.", **common},
        ],
        "plans": [{"name": "Sums", "schema": SUMS, "variables": True}],
        "actionDispatcher": dispatcher,
        "limits": {"maxParallelActions": 3},
    }


def add(*numbers: Any, to: str, **more: Any) -> dict[str, Any]:
    return {"kind": "add", "numbers": list(numbers), "_outputPath": to, **more}


SOURCES, FANNED, JOINED = range(5), range(5, 25), range(25, 35)
FAILS, ON_SUCCESS, EITHER = 35, 36, 37
PARTS, BOTH, TOTAL = range(38, 46), range(46, 49), 49


def actions() -> list[dict[str, Any]]:
    """Values go through the state of the thread and through a data object of the query; one action fails, and its error
    goes to a path of its own."""
    return [
        *(add(n + 1, "†input.base", to=f"†state.source.s{n}") for n in SOURCES),
        *(
            add(f"†state.source.s{n % 5}", f"†state.source.s{(n + 1) % 5}", n, to=f"†state.fan.a{n}")
            for n in FANNED
        ),
        *(add(f"†state.fan.a{2 * n - 45}", f"†state.fan.a{2 * n - 44}", to=f"†joined.b{n}") for n in JOINED),
        {"kind": "fail", "fails": "no luck", "_outputPath": "†state.ok || †state.bad"},
        add("†state.ok", to="†state.never"),
        add("†state.ok || †state.source.s0", to="†state.either"),
        *(
            add(
                f"†joined.b{n - 13}",
                f"†joined.b{n - 11}",
                name=f"p{n}",
                to="†state.parts",
                _outputMethod="merge",
            )
            for n in PARTS
        ),
        *(
            add("†state.parts.p38", f"†state.parts.p{n - 7}", to=f"†state.left.c{n} && †joined.c{n}")
            for n in BOTH
        ),
        add(*(f"†joined.c{n}" for n in BOTH), "†state.left.c46", "†state.either", to="†state.total"),
    ]


class Answers:
    """What a receiver answers to actions; those that are held have arrived, and wait for their answer."""

    def __init__(self) -> None:
        self._held: set[int] = set()
        self._news = threading.Condition()

    def __call__(self, body: dict[str, Any]) -> dict[str, Any]:
        (action,) = body["actions"]
        with self._news:
            self._news.wait_for(lambda: action["index"] not in self._held, 60)
        return carried_out([action])

    def hold(self, *indexes: int) -> None:
        self._held.update(indexes)

    def let_go(self) -> None:
        with self._news:
            self._held.clear()
            self._news.notify_all()


FINISHED = """
SELECT idempotency_key FROM plan_actions WHERE plan_id = $1 AND status IN ('succeeded', 'failed', 'skipped')
"""


@dataclass(frozen=True, eq=False)
class Run:
    """An execution of the plan. What reached the user is in `source`."""

    house: House
    reader: Reader
    plan_id: str
    thread_id: str
    dispatcher: dict[str, Any]
    source: Ledger | Receiver

    @property
    def name(self) -> str:
        return f"{self.dispatcher['kind']}-{self.dispatcher['replay']}"

    @property
    def never(self) -> bool:
        """Whether what may have arrived is not repeated."""
        return bool(self.dispatcher["replay"] == "never")

    def rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.house.get(f"/plans/{self.plan_id}/actions")["items"]
        return found

    def statuses(self) -> list[str]:
        return [row["status"] for row in self.rows()]

    def status(self) -> str:
        return str(self.house.get(f"/plans/{self.plan_id}")["status"])

    def state(self) -> Any:
        return self.house.get(f"/threads/{self.thread_id}/state")["document"]

    def came(self) -> list[tuple[str, dict[str, Any]]]:
        """The actions that came to the user, in their order, with their keys."""
        if isinstance(self.source, Receiver):
            posted = self.source.of(self.reader.query_id)
            return [(headers["idempotency-key"], body["actions"][0]) for headers, body in posted]
        lines = self.source.lines("arrivals", self.reader.query_id)
        return [(line["key"], line["action"]) for line in lines]

    def arrivals(self) -> Counter[str]:
        """How often each key came to the user."""
        return Counter(key for key, _ in self.came())

    def finished(self) -> set[str]:
        """The keys of the actions that are over, as the database has it: the service need not be there."""
        return {row["idempotency_key"] for row in self.house.sql(FINISHED, self.plan_id)}

    def settle(self, index: int, outcome: str, details: Any = None) -> None:
        """A person says what became of an action."""
        self.house.post(f"/plans/{self.plan_id}/actions/{index}", {"outcome": outcome, "details": details})


def started(house: House, dispatcher: dict[str, Any], source: Ledger | Receiver) -> Run:
    """Stores the plan and starts it, approved."""
    runtime = house.register(spec(dispatcher))
    asked = {
        "specName": "Sums",
        "runtimeId": runtime,
        "threadKey": uuid.uuid4().hex,
        "body": {"actions": actions()},
    }
    plan = house.post("/plans", asked, 201)
    accepted = house.post(f"/plans/{plan['id']}/execute", {"inputs": {"base": 100}}, 202)
    reader = house.follow(accepted["id"])
    house.approve(reader)
    return Run(house, reader, plan["id"], plan["threadId"], dispatcher, source)
