"""What a stateful agent remembers of its thread: its finished runs, from their own work records. There is no
second store: the transcript is the memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from plangate.spec.models import AgentSpec

from app.agents import store
from app.agents.loop import Objection, messages
from app.agents.models import WorkRow, WorkTree, transcript
from app.agents.run import QueryRun
from app.journal.models import Work
from app.llm.messages import Message

MAX_RUNS = 100  # of one agent in one thread; older ones leave the prompt, not the record


async def recall(
    run: QueryRun, agent: AgentSpec, work: Work, objection: Objection | None
) -> tuple[Message, ...]:
    """The conversation of the agent's earlier runs in this thread, oldest first; nothing for a stateless one. An
    agent that another one calls may have been called before in this very query."""
    first = run.query.thread_is_new and work.parent_id == run.query.root_work_id
    if not agent.stateful or first:
        return ()
    runs, records = await run.look(
        lambda tx: store.memory(tx, run.query.thread_id, agent.name, work.id, MAX_RUNS)
    )
    return remembered(runs, records, objection)


def remembered(
    runs: Sequence[tuple[str, str]], records: Sequence[WorkRow], objection: Objection | None = None
) -> tuple[Message, ...]:
    """The messages of finished runs, from (work id, prompt) of each and the records below them; with the agent's
    `objection` also what was said to answers that were not accepted."""
    tree = WorkTree.of(records)
    out: list[Message] = []
    for id, prompt in runs:
        said = messages(replace(transcript(tree, id, prompt, ()), objection=objection))
        # The last answer was accepted, whatever a later version of the agent would say to it.
        out += said if said[-1].role == "assistant" else said[:-1]
    return tuple(out)
