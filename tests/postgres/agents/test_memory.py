"""The memory of a stateful agent: whole turns of its thread, in order, as many as fit the model's window."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import app.agents.memory as memory_module
import app.agents.runner as runner_module
import app.queries.service as service_module
from app.base.ids import min_id, new_id
from app.engine import store
from app.llm.messages import Text, ToolUse, TurnDone, Usage
from app.llm.provider import ContextOverflow
from tests.support import specs
from tests.support.client import Caller
from tests.support.world import World, world

Stream = Callable[[Any], AsyncIterator[Any]]
SMALL = "gpt-4"  # of OpenAI, as the price table has it: 8,192 tokens, of which half are left to the answer
LARGE = "gpt-4o-mini"  # 128,000
EXPIRE = "UPDATE queries SET lease_expires_at = now() - interval '1 s' WHERE status = 'running'"


class Model:
    """A model of a vendor that answers as a test says; `heard` has the texts of each request."""

    def __init__(self, answer: Callable[[Any], Any], kind: str = "openai") -> None:
        self.answer = answer
        self.kind = kind
        self.heard: list[list[str]] = []

    async def of(self, *_: Any) -> tuple[Model, str]:
        return self, self.kind

    async def stream(self, request: Any) -> AsyncIterator[Any]:
        blocks = [b for m in request.messages for b in m.blocks]
        self.heard.append([b.text[:8] for b in blocks if isinstance(b, Text)])
        found = self.answer(request)
        if isinstance(found, Exception):
            raise found
        yield found if isinstance(found, TurnDone) else done()


def done(text: str = "ok", tokens: int = 0) -> TurnDone:
    return TurnDone((Text(text),), "end_turn", Usage(tokens), "m")


def listens(w: World, answer: Callable[[Any], Any] = lambda _: None, kind: str = "openai") -> Model:
    model = Model(answer, kind)
    w.services.providers.of = model.of  # type: ignore[method-assign]
    return model


def prompt(name: object, size: int = 3000) -> str:
    return f"{name}".ljust(size, ".")


def said(*names: object) -> list[str]:
    """The texts of a prompt whose last one is a run's own."""
    texts = [t for name in names for t in (f"{name}".ljust(8, "."), "ok")]
    return texts[:-1]


def too_large(_: Any) -> Exception:
    return ContextOverflow("The prompt is larger than the model's window: no.")


async def stateful(api: Caller, model: str = SMALL, **parts: Any) -> None:
    await api.register(specs.mock() | {"agents": [specs.agent(stateful=True, model=model, **parts)]})


async def left_out(w: World, query: str) -> list[dict[str, Any] | None]:
    """What the records of the query's model calls say, oldest first."""
    work = (await w.api.read(f"/queries/{query}/work"))["items"]
    return [x["input"].get("leftOut") for x in work if x["kind"] == "model_call"]


# -- the window


async def test_whole_oldest_turns_leave_the_prompt_and_not_the_record(plangate: World, api: Caller) -> None:
    await stateful(api)
    model = listens(plangate)
    queries = [await api.run(prompt(n), threadKey="t") for n in range(7)]
    assert model.heard == [
        said(0),
        said(0, 1),
        said(0, 1, 2),
        said(0, 1, 2, 3),
        said(2, 3, 4),  # the fifth has no room any more: a share of it is kept
        said(2, 3, 4, 5),
        said(4, 5, 6),
    ]
    told = [await api.events(q["id"], "context-trimmed") for q in queries]
    assert [[e["data"]["turns"] for e in events] for events in told] == [[], [], [], [], [2], [], [4]]
    (event,) = told[4]
    assert event["data"]["tokens"] == 2 * 1001  # the prompt and its answer, at three bytes a token
    assert event["agent"] == "solo"
    assert await left_out(plangate, queries[3]["id"]) == [None]
    ((kept),) = await left_out(plangate, queries[4]["id"])
    assert kept is not None
    assert (kept["turns"], kept["tokens"]) == (2, 2002)
    assert await left_out(plangate, queries[5]["id"]) == [kept]
    messages = (await api.read(f"/threads/{queries[0]['threadId']}/messages"))["items"]
    assert [m["blocks"][0]["text"][:1] for m in messages if m["role"] == "user"] == [*"0123456"]


async def test_the_trim_event_comes_before_its_turn(plangate: World, api: Caller) -> None:
    await stateful(api)
    listens(plangate)
    for n in range(4):
        await api.run(prompt(n), threadKey="t")
    events = await api.events((await api.run(prompt(4), threadKey="t"))["id"])
    types = [e["type"] for e in events]
    at = types.index("context-trimmed")
    assert (types[at - 1], types.count("context-trimmed")) == ("step-start", 1)
    assert events[at]["workId"] == events[at - 1]["workId"]


async def test_the_estimate_follows_the_vendors_token_count(plangate: World, api: Caller) -> None:
    """At a token a byte, two prompts of 60,000 bytes are more than the window; by the usual estimate they are not."""
    await stateful(api, LARGE)
    model = listens(plangate, lambda _: done(tokens=60_000))
    for n in range(2):
        query = await api.run(prompt(n, 60_000), threadKey="t")
    assert model.heard == [said(0), said(1)]
    (event,) = await api.events(query["id"], "context-trimmed")
    assert event["data"]["turns"] == 1
    assert event["data"]["tokens"] == pytest.approx(60_000, rel=0.01)


async def test_a_growing_run_drops_older_turns(plangate: World, api: Caller) -> None:
    await api.register(
        specs.mock()
        | {"agents": [specs.agent(stateful=True, model=SMALL, tools=["add"])], "tools": [specs.tool("add")]}
    )

    def answer(request: Any) -> TurnDone:
        if len(model.heard) == 2:
            return TurnDone((ToolUse("u", "add", '{"n": 1}'),), "tool_use", Usage(), "m")
        return done()

    model = listens(plangate, answer)
    await api.run(prompt("a"), threadKey="t")
    query = (await api.submit(prompt("b"), threadKey="t"))["id"]
    await api.serve("add", "x" * 8000)
    assert (await api.ended(query))["status"] == "succeeded"
    assert model.heard == [said("a"), said("a", "b"), said("b")]
    assert [e["data"]["turns"] for e in await api.events(query, "context-trimmed")] == [1]


async def test_a_different_model_starts_with_the_whole_memory(plangate: World, api: Caller) -> None:
    await stateful(api)
    listens(plangate)
    for n in range(5):
        await api.run(prompt(n), threadKey="t")
    await stateful(api, LARGE)
    model = listens(plangate)
    newest = (await api.read("/runtimes"))["items"][0]["id"]
    await api.run(prompt(5), threadKey="t", runtimeId=newest)
    assert model.heard == [said(0, 1, 2, 3, 4, 5)]


# -- what the vendor refuses


async def test_a_prompt_rejected_as_too_large_is_shortened_and_resent(plangate: World, api: Caller) -> None:
    """Nobody knows this model's window: it takes two texts of the user's."""
    await stateful(api, "a-model-of-ones-own")

    def answer(request: Any) -> Any:
        return too_large(request) if len(request.messages) > 3 else None

    model = listens(plangate, answer)
    for n in range(2):
        await api.run(prompt(n), threadKey="t")
    query = (await api.run(prompt(2), threadKey="t"))["id"]
    assert model.heard[2:] == [said(0, 1, 2), said(1, 2)]
    steps = [
        e for e in await api.events(query) if e["type"] in ("step-start", "step-retry", "context-trimmed")
    ]
    assert [e["type"] for e in steps] == ["step-start", "step-retry", "context-trimmed"]
    assert steps[1]["reason"].startswith("context_overflow: The prompt is larger than the model's window")
    assert steps[2]["data"] == {"turns": 1, "tokens": 1001}
    (call,) = [x for x in (await api.read(f"/queries/{query}/work"))["items"] if x["kind"] == "model_call"]
    assert (call["attempts"], call["input"]["leftOut"]["turns"]) == (2, 1)
    await api.run(
        prompt(3), threadKey="t"
    )  # what left stays out, though nothing says how large the window is
    assert model.heard[4:] == [said(1, 2, 3), said(2, 3)]


async def test_a_query_too_long_without_memory_fails_with_advice(plangate: World, api: Caller) -> None:
    await stateful(api, "a-model-of-ones-own")

    def answer(request: Any) -> Any:
        return too_large(request) if "huge" in str(request.messages) else None

    model = listens(plangate, answer)
    for n in range(3):
        await api.run(prompt(n), threadKey="t")
    query = await api.run("huge", threadKey="t")
    assert (query["status"], query["error"]["code"]) == ("failed", "context_overflow")
    assert query["error"]["message"] == (
        "The prompt is larger than the model's window: no. No earlier turn is left that could leave the prompt: what "
        "this query itself says and hears is too long. Ask for less in one query, let its tools return less, or use "
        "a model with a larger window."
    )
    assert model.heard[3:] == [[*said(0, 1, 2), "ok", "huge"], [*said(2), "ok", "huge"], ["huge"]]
    assert [e["data"]["turns"] for e in await api.events(query["id"], "context-trimmed")] == [2, 3]
    await api.run(prompt(3), threadKey="t")  # what failed is not remembered, nor what it cost
    assert model.heard[6:] == [said(0, 1, 2, 3)]


async def test_a_stateless_agent_has_no_memory_to_trim(plangate: World, api: Caller) -> None:
    await api.register(specs.mock())
    model = listens(plangate, too_large)
    query = await api.run("hi", threadKey="t")
    assert (query["error"]["code"], len(model.heard)) == ("context_overflow", 1)


# -- after a crash


@pytest.mark.parametrize("refused", [False, True])
async def test_a_turn_cut_by_a_crash_is_requested_unchanged(
    plangate: World, api: Caller, owner: Any, site: Any, cluster: Any, refused: bool
) -> None:
    """Although the process that goes on knows no window: what was left out is on record before it is sent."""
    await stateful(api)
    asked = asyncio.Event()
    cut: list[Any] = []

    def answer(request: Any) -> Any:
        if "4..." not in str(request.messages):
            return None
        if refused and len(cut) == 0:
            cut.append(too_large(request))
            return cut[0]
        asked.set()
        return None

    model = listens(plangate, answer)
    for n in range(4):
        await api.run(prompt(n), threadKey="t")
    held = asyncio.Event()
    stream = model.stream

    async def hang(request: Any) -> AsyncIterator[Any]:
        async for part in stream(request):
            if asked.is_set():
                await held.wait()
            yield part

    model.stream = hang  # type: ignore[method-assign]
    query = (await api.submit(prompt(4), threadKey="t"))["id"]
    await asked.wait()
    before = model.heard[-1]
    for task in plangate.services.worker._tasks:  # a process that is gone renews no lease and takes no query
        task.cancel()
    async with world(site, cluster.operator_key, started=False) as other:
        after = listens(other, kind="mock")
        await owner.execute(EXPIRE)
        await other.services.start()
        ended = await other.api.ended(query)
    assert ended["status"] == "succeeded"
    assert after.heard == [before] == [said(3, 4) if refused else said(2, 3, 4)]
    turns = [e["data"]["turns"] for e in await api.events(query, "context-trimmed")]
    assert turns == ([2, 3] if refused else [2])
    (kept,) = await left_out(plangate, query)
    assert kept is not None
    assert kept["turns"] == turns[-1]


async def test_dropped_turns_stay_dropped(
    plangate: World, api: Caller, owner: Any, site: Any, cluster: Any
) -> None:
    await api.register(
        specs.mock()
        | {"agents": [specs.agent(stateful=True, model=SMALL, tools=["add"])], "tools": [specs.tool("add")]}
    )

    def answer(request: Any) -> Any:
        if "4..." in str(request.messages):
            return TurnDone((ToolUse("u", "add", '{"n": 1}'),), "tool_use", Usage(), "m")
        return None

    listens(plangate, answer)
    for n in range(4):
        await api.run(prompt(n), threadKey="t")
    query = (await api.submit(prompt(4), threadKey="t"))["id"]
    await api.until(query, "waiting")
    await plangate.services.worker.drain(0)
    async with world(site, cluster.operator_key, started=False) as other:
        after = listens(other, kind="mock")
        await other.services.start()
        await api.serve("add", 1)
        assert (await other.api.ended(query))["status"] == "succeeded"
    assert after.heard == [said(2, 3, 4)]
    assert len(await api.events(query, "context-trimmed")) == 1


# -- order and record


async def test_memory_order_does_not_depend_on_process_clocks(
    plangate: World, api: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second query is accepted and run by a process whose clock is in the year 1970."""
    await stateful(api, LARGE)
    model = listens(plangate)

    def id_of_1970(prefix: str) -> str:
        return min_id(prefix, 1_000)[:-12] + secrets.token_hex(6)

    for n in range(3):
        for module in (runner_module, service_module):
            monkeypatch.setattr(module, "new_id", id_of_1970 if n == 1 else new_id)
        query = await api.run(prompt(n), threadKey="t")
    assert model.heard == [said(0), said(0, 1), said(0, 1, 2)]
    messages = (await api.read(f"/threads/{query['threadId']}/messages"))["items"]
    assert [m["blocks"][0]["text"][:1] for m in messages if m["role"] == "user"] == [*"012"]


async def test_thread_messages_show_the_feedback_on_an_answer(plangate: World, api: Caller) -> None:
    await stateful(api, outputSchema={"type": "integer"})
    told: list[str] = []

    def answer(request: Any) -> TurnDone:
        told.append(request.messages[-1].blocks[0].text)
        return done("1" if len(told) > 1 else "one")

    listens(plangate, answer)
    query = await api.run(threadKey="t")
    assert told[1].startswith("Your answer must be JSON and nothing else; it is not: ")
    await stateful(api, outputSchema={"type": "string"})  # what was said stays said
    found = (await api.read(f"/threads/{query['threadId']}/messages"))["items"]
    assert [(m["role"], m["blocks"][0]["text"]) for m in found] == [
        ("user", "hi"),
        ("assistant", "one"),
        ("user", told[1]),
        ("assistant", "1"),
    ]
    calls = [
        x for x in (await api.read(f"/queries/{query['id']}/work"))["items"] if x["kind"] == "model_call"
    ]
    assert [c["input"].get("objection") for c in calls] == [None, told[1]]


async def test_loading_memory_reads_only_its_thread(owner: Any) -> None:
    await owner.execute(
        """
        INSERT INTO work_records (tenant_id, id, query_id, thread_id, parent_id, kind, name, agent, status, input, started_at)
        SELECT 'acme', 'wrk_' || n, 'qry_' || n / 3, 'thr_' || n / 30, CASE WHEN n % 3 > 0 THEN 'wrk_' || n / 3 * 3 END,
               CASE WHEN n % 3 = 0 THEN 'agent' ELSE 'model_call' END, 'a', 'a', 'succeeded', 'x', now() + n * interval '1 s'
          FROM generate_series(0, 30000) n;
        ANALYZE work_records;
        """
    )
    for sql, args in (
        (store.PAST_RUNS, ("acme", "thr_7", "a", "wrk_219", "wrk_213", None)),
        (store.LAST_CALL, ("acme", "thr_7", "a", "wrk_219")),
        (store.RECORDS_OF, ("acme", ["qry_71"], ["wrk_213"])),
    ):
        statement = await owner.prepare(f"EXPLAIN {sql}")
        text = "\n".join(r[0] for r in await statement.fetch(*args))
        assert "Seq Scan" not in text, text
    runs = await owner.fetch(store.PAST_RUNS, "acme", "thr_7", "a", "wrk_219", "wrk_213", None)
    assert [r["work_id"] for r in runs] == ["wrk_216"]
    last = await owner.fetchrow(store.LAST_CALL, "acme", "thr_7", "a", "wrk_219")
    assert last["parent_id"] == "wrk_216"


async def test_a_memory_too_large_to_load_is_trimmed(
    plangate: World, api: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_module, "MAX_REMEMBERED_BYTES", 7000)
    await stateful(api, "a-model-of-ones-own")
    model = listens(plangate)
    for n in range(4):
        query = await api.run(prompt(n), threadKey="t")
    assert model.heard[3] == said(1, 2, 3)
    (event,) = await api.events(query["id"], "context-trimmed")
    assert event["data"]["turns"] == 1
