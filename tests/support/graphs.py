"""A runtime whose plans are graphs, and a client process that carries out its actions."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from tests.support import specs
from tests.support.client import Caller, good, refused

Do = Callable[[dict[str, Any]], Any]
SHORTEST_WAIT_S, LONGEST_WAIT_S = 0.005, 0.05
"""Between two claims of the client process: it looks less often while nothing is dispatched."""

SEATS: specs.Spec = {"name": "Seats", "schema": {}, "ttlMs": 3_600_000}
FLOW: specs.Spec = {
    "name": "Flow",
    "variables": True,
    "schema": {
        "type": "object",
        "properties": {
            "reason": {"type": "string"},
            "actions": {
                "type": "array",
                "items": {
                    "oneOf": [
                        specs.variant("make", value={}),
                        specs.variant("add", numbers={"type": "array", "items": {"type": "integer"}}),
                        specs.variant("note", text={"type": "string"}),
                        specs.variant("count", n={"type": "integer", "minimum": 1}),
                    ],
                    "discriminator": {"propertyName": "kind"},
                },
            },
        },
        "required": ["actions"],
        "additionalProperties": False,
    },
}


def flowing(**parts: Any) -> specs.Spec:
    """A coordinator, a planner and an executor of `Flow`, with a dispatcher of the user's."""
    parts = {"actionDispatcher": "client", **parts}
    return specs.spec(
        specs.agent("chief", "coordinator", routes=["planner", "doer"]),
        specs.agent("planner", "planner", plan="Flow"),
        specs.agent("doer", "executor", plan="Flow"),
        plans=[FLOW],
        interpreter="scripted",
        **parts,
    )


def make(value: Any, path: str | None = None, method: str | None = None) -> specs.Spec:
    return to({"kind": "make", "value": value}, path, method)


def add(*numbers: Any, path: str | None = None, method: str | None = None) -> specs.Spec:
    return to({"kind": "add", "numbers": list(numbers)}, path, method)


def note(text: Any, path: str | None = None, method: str | None = None) -> specs.Spec:
    return to({"kind": "note", "text": text}, path, method)


def count(n: Any, path: str | None = None, method: str | None = None) -> specs.Spec:
    return to({"kind": "count", "n": n}, path, method)


def to(action: specs.Spec, path: str | None, method: str | None) -> specs.Spec:
    where = {"_outputPath": path, "_outputMethod": method}
    return action | {name: held for name, held in where.items() if held is not None}


def did(value: Any, entities: int = 1) -> dict[str, Any]:
    """What a dispatcher answers: `value` is what goes to the output path."""
    return {"entitiesAffected": entities, "details": value}


def carry_out(action: dict[str, Any]) -> Any:
    """The plain meaning of each kind of action."""
    payload = action["payload"]
    if action["kind"] == "make":
        return did(payload["value"])
    if action["kind"] == "add":
        return did(sum(payload["numbers"]))
    return did(payload.get("text", payload.get("n")))


class Hands:
    """A process of the user; `seen` are the actions in the order in which they came."""

    def __init__(self, api: Caller, do: Do) -> None:
        self._api = api
        self._do = do
        self.seen: list[dict[str, Any]] = []

    @property
    def order(self) -> list[int]:
        return [action["index"] for action in self.seen]

    def payload(self, index: int) -> Any:
        return next(a["payload"] for a in self.seen if a["index"] == index)

    async def work(self) -> None:
        asked = {"tools": [{"name": "actions"}], "max": 8}
        delay_s = SHORTEST_WAIT_S
        while True:
            calls = (await self._api.do("/tool-calls/claim", asked))["calls"]
            for call in calls:
                (action,) = call["actions"]
                self.seen.append(action)
                done = self._do(action)
                error = str(done) if isinstance(done, Exception) else None
                good(await self._api.result(call, None if error else done, error))
            delay_s = SHORTEST_WAIT_S if calls else min(delay_s * 1.5, LONGEST_WAIT_S)
            await asyncio.sleep(delay_s)


@contextlib.asynccontextmanager
async def hands(api: Caller, do: Do = carry_out) -> AsyncIterator[Hands]:
    """Carries out what is dispatched for the length of the block."""
    mine = Hands(api, do)
    task = asyncio.create_task(mine.work())
    try:
        yield mine
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def stored(api: Caller, *actions: specs.Spec, **parts: Any) -> dict[str, Any]:
    """A plan of a host."""
    body = {"specName": "Flow", "runtime": "default", "body": {"actions": list(actions)}, **parts}
    plan: dict[str, Any] = await api.do("/plans", body)
    return plan


async def executed(api: Caller, plan: dict[str, Any], **parts: Any) -> dict[str, Any]:
    """The plan once it was approved and is over."""
    started = await api.do(f"/plans/{plan['id']}/execute", parts)
    await api.approve(started["id"])
    await api.ended(started["id"])
    over: dict[str, Any] = await api.read(f"/plans/{started['planId']}")
    return over


async def statuses(api: Caller, plan: dict[str, Any]) -> list[str]:
    rows: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    while True:
        page = await api.read(f"/plans/{plan['id']}/actions", limit=500, **cursor)
        rows += page["items"]
        if page.get("nextCursor") is None:
            return [row["status"] for row in rows]
        cursor = {"cursor": page["nextCursor"]}


async def state(api: Caller, plan: dict[str, Any]) -> Any:
    return (await api.read(f"/threads/{plan['threadId']}/state"))["document"]


async def flaws(api: Caller, *actions: specs.Spec, **parts: Any) -> list[tuple[str, str]]:
    """Where and why a plan is not stored. None of it is."""
    body = {"specName": "Flow", "runtime": "default", "body": {"actions": list(actions)}, **parts}
    problem = refused(await api.post("/plans", body), 422, "invalid")
    assert (await api.read("/plans"))["items"] == []
    return [(flaw["pointer"].removeprefix("/body/actions"), flaw["message"]) for flaw in problem["errors"]]


async def begun(api: Caller, plan: dict[str, Any], **parts: Any) -> dict[str, Any]:
    """The query that executes a plan, as it was accepted."""
    started: dict[str, Any] = await api.do(f"/plans/{plan['id']}/execute", parts)
    return started


async def subject(api: Caller, approval: dict[str, Any]) -> Any:
    """What is approved; checks that its bytes are those of the digest."""
    found = await api.get(f"/approvals/{approval['id']}/subject")
    assert hashlib.sha256(found.content).hexdigest() == approval["digest"]
    return found.json()


async def came_to_nothing(api: Caller, plan: dict[str, Any], **parts: Any) -> str:
    """Why executing a plan came to nothing: nobody was asked, and it is a draft still."""
    query = await api.ended((await begun(api, plan, **parts))["id"])
    assert (query["status"], query["error"]["code"]) == ("failed", "plan_failed")
    assert (await api.read("/approvals"))["items"] == []
    assert (await api.read(f"/plans/{plan['id']}"))["status"] == "draft"
    return str(query["error"]["message"])


async def seats(api: Caller, value: Any) -> tuple[str, str]:
    """A reference: its id, and what a variable calls it."""
    made = await api.do("/references", {"runtime": "default", "kind": "Seats", "value": value})
    return made["id"], f"†ref.Seats.{made['id']}"


def answering(**answers: Any) -> Do:
    """What some of the actions answer, by `_<index>`; the others are carried out."""

    def do(action: dict[str, Any]) -> Any:
        return answers.get(f"_{action['index']}", carry_out(action))

    return do


async def told(api: Caller, plan: dict[str, Any]) -> dict[int, tuple[str, str]]:
    """The code and the message of each action that has an error."""
    rows = (await api.read(f"/plans/{plan['id']}/actions"))["items"]
    return {r["index"]: (r["error"]["code"], r["error"]["message"]) for r in rows if r["error"]}


async def running(api: Caller, plan: dict[str, Any], **parts: Any) -> str:
    """The query, once everything that can be sent is outside."""
    query = (await begun(api, plan, **parts))["id"]
    await api.approve(query)
    await api.until(query, "waiting", "client_call")
    return query


async def taken(api: Caller) -> list[dict[str, Any]]:
    """Every call that is offered now."""
    asked = {"tools": [{"name": "actions"}], "max": 100}
    calls: list[dict[str, Any]] = (await api.do("/tool-calls/claim", asked))["calls"]
    return calls


def index(call: dict[str, Any]) -> int:
    return int(call["actions"][0]["index"])


async def is_done(api: Caller, plan: dict[str, Any], n: int) -> bool:
    return (await statuses(api, plan))[n] == "succeeded"
