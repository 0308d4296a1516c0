"""What a stateful agent remembers of its thread: its finished runs, from their own work records. There is no
second store: the transcript is the memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from app.agents.loop import transcript_messages
from app.agents.model_calls import ModelCaller
from app.agents.prompt_window import (
    PastTurn,
    PromptContext,
    PromptRecord,
    fixed_size,
    messages_size,
    prompt_tokens,
)
from app.agents.transcript import load_transcript
from app.base.postgres.database import Tx
from app.engine import store
from app.engine.models import PastRun, WorkRow, WorkTree
from app.engine.query_run import QueryRun
from app.llm.messages import Message
from app.llm.prices import window

MOST_BYTES = 8 * 1024 * 1024  # of one memory in a process; no window holds more
SHOWN_RUNS = 100  # of an agent, when people read a thread


async def load_memory(run: QueryRun, asked: ModelCaller) -> PromptContext:
    """Return the context that the agent's earlier runs in this thread put in front of this run; nothing for
    a stateless agent. If another agent calls it, an earlier run may belong to this query. Turns that
    were dropped stay dropped while the agent keeps its model, and a run that continues after a crash has
    the context of its newest model call."""
    agent = asked.agent
    context = PromptContext(fixed_size=fixed_size(asked.system + asked.notes, asked.tools))
    first = run.query.thread_is_new and asked.parent_id == run.query.root_work_id
    if not agent.stateful or first:
        return context
    own = sorted(run.tree.below(asked.work_id, "model_call"), key=lambda r: r.position)

    async def look(tx: Tx) -> tuple[PromptContext, list[WorkRow], list[PastRun]]:
        thread, name = run.query.thread_id, agent.name
        last = own[-1] if own else await store.last_call(tx, thread, name, asked.work_id)
        known = (
            _continue_context(context, last) if last is not None and last.name == agent.model.id else context
        )
        runs = await store.past_runs(tx, thread, name, asked.work_id, known.left_out.through)
        kept = _newest_runs(runs)
        known = known.without((r.work_id, r.size) for r in runs[: len(runs) - len(kept)])
        return known, await store.records_of_runs(tx, kept), kept

    known, records, kept = await run.look(look)
    if not kept:
        return known
    model = agent.model
    room = prompt_tokens(window(asked.vendor, model.id), model.max_output_tokens, model.thinking)
    return replace(known, past=past_turns(kept, records), room=room)


async def load_conversation(tx: Tx, thread_id: str, agent: str) -> list[Message]:
    """Return the messages of an agent's newest finished runs in a thread, oldest first, from the record:
    also those that have left the prompt."""
    runs = (await store.past_runs(tx, thread_id, agent, None, None))[-SHOWN_RUNS:]
    past = past_turns(runs, await store.records_of_runs(tx, runs))
    return [message for turn in past for message in turn.messages]


def past_turns(runs: Sequence[PastRun], records: Sequence[WorkRow]) -> tuple[PastTurn, ...]:
    """Return the messages of finished runs, in order, from their records and the records below them."""
    tree = WorkTree.of(records)
    prompts = {r.id: (r.input or b"").decode() for r in records if r.kind == "agent"}
    told = [
        (run.work_id, transcript_messages(load_transcript(tree, run.work_id, prompts[run.work_id])))
        for run in runs
    ]
    return tuple(PastTurn(id, said, messages_size(said)) for id, said in told)


def _continue_context(context: PromptContext, call: WorkRow) -> PromptContext:
    """With what a model call left out; and with what it measured, if it was answered at its first attempt: the usage
    of a record is that of all its attempts."""
    if call.input is None:
        return context
    given = PromptRecord.load(call.input)
    context = replace(context, left_out=given.left_out, told=given.left_out.turns)
    if call.status == "succeeded" and call.attempts == 1:
        return context.measured(given.size, call.usage)
    return context


def _newest_runs(runs: Sequence[PastRun]) -> list[PastRun]:
    kept: list[PastRun] = []
    total = 0
    for run in reversed(runs):
        total += run.size
        if total > MOST_BYTES:
            break
        kept.insert(0, run)
    return kept
