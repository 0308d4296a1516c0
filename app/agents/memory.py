"""The memory of a stateful agent: its finished runs in the thread, from their own work records. There is no second
store: the transcript is the memory."""

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
from app.engine.models import PastRun, WorkEntry, WorkTree
from app.engine.query_run import QueryRun
from app.engine.service import last_call, past_runs, records_of_runs
from app.llm.messages import Message
from app.llm.prices import window

MAX_REMEMBERED_BYTES = 8 * 1024 * 1024  # of one memory in a process; no window is larger


async def load_memory(run: QueryRun, caller: ModelCaller) -> PromptContext:
    """Return the context that the agent's earlier runs in this thread put before this run; an empty one for a
    stateless agent. If another agent calls it, an earlier run may belong to this query. Turns that were dropped stay
    dropped while the agent keeps its model, and a run that continues after a crash has the context of its newest
    model call."""
    agent = caller.agent
    context = PromptContext(fixed_size=fixed_size(caller.system + caller.notes, caller.tools))
    first = run.query.thread_is_new and caller.parent_id == run.query.root_work_id
    if not agent.stateful or first:
        return context
    own = sorted(run.tree.below(caller.work_id, "model_call"), key=lambda r: r.position)

    async def read_memory(tx: Tx) -> tuple[PromptContext, list[WorkEntry], list[PastRun]]:
        thread, name = run.query.thread_id, agent.name
        last = own[-1] if own else await last_call(tx, thread_id=thread, agent=name, before=caller.work_id)
        known = (
            _continue_context(context, last) if last is not None and last.name == agent.model.id else context
        )
        runs = await past_runs(
            tx, thread_id=thread, agent=name, before=caller.work_id, after=known.left_out.through
        )
        newest = _newest_runs(runs)
        known = known.without((r.work_id, r.size) for r in runs[: len(runs) - len(newest)])
        return known, await records_of_runs(tx, runs=newest), newest

    known, records, newest = await run.read(read_memory)
    if not newest:
        return known
    model = agent.model
    room = prompt_tokens(window(caller.vendor, model.id), model.max_output_tokens, model.thinking)
    return replace(known, past=past_turns(newest, records), room=room)


async def load_conversation(tx: Tx, runs: Sequence[PastRun]) -> list[Message]:
    """Return the messages of finished runs, in order, including those that have left the prompt."""
    past = past_turns(runs, await records_of_runs(tx, runs=runs))
    return [message for turn in past for message in turn.messages]


def past_turns(runs: Sequence[PastRun], records: Sequence[WorkEntry]) -> tuple[PastTurn, ...]:
    """Return the messages of finished runs, in order, from their records and the records below them."""
    tree = WorkTree.of(records)
    prompts = {r.id: (r.input or b"").decode() for r in records if r.kind == "agent"}
    messages_by_run = [
        (run.work_id, transcript_messages(load_transcript(tree, run.work_id, prompts[run.work_id])))
        for run in runs
    ]
    return tuple(PastTurn(id, messages, messages_size(messages)) for id, messages in messages_by_run)


def _continue_context(context: PromptContext, call: WorkEntry) -> PromptContext:
    """Return the context as a model call left it. Its measure counts only if its first attempt succeeded, because the
    usage of a record is that of all its attempts."""
    if call.input is None:
        return context
    prompt_record = PromptRecord.load(call.input)
    context = replace(context, left_out=prompt_record.left_out, announced=prompt_record.left_out.turns)
    if call.status == "succeeded" and call.attempts == 1:
        return context.measured(prompt_record.size, call.usage)
    return context


def _newest_runs(runs: Sequence[PastRun]) -> list[PastRun]:
    newest: list[PastRun] = []
    total = 0
    for run in reversed(runs):
        total += run.size
        if total > MAX_REMEMBERED_BYTES:
            break
        newest.insert(0, run)
    return newest
