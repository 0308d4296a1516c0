"""The messages of a thread's agents, for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from app.agents.memory import load_conversation
from app.base.postgres.database import Tx
from app.base.postgres.pages import MAX_PAGE_BYTES
from app.engine.models import PastRun
from app.engine.service import agents_of_thread, past_runs
from app.llm.codec import block_wire
from app.llm.messages import Message
from app.queries import threads

MAX_PAGE_RUNS: Final = 100
MAX_READ_RUNS: Final = MAX_PAGE_RUNS + 2
"""Of one agent: one more that may have started at the same moment as the last of the page, and one that shows whether
there are more."""


async def load_messages(
    tx: Tx, thread_id: str, agent: str | None, before: str | None
) -> tuple[list[dict[str, Any]], str | None]:
    """Return the messages of the newest finished runs in this thread, by agent, oldest first, and the run before which the
    next page begins, or None on the last page. `before` is such a run. Raise NotFound."""
    await threads.read_thread(tx, thread_id)
    agents = [agent] if agent is not None else await agents_of_thread(tx, thread_id=thread_id)
    runs = {
        name: await past_runs(tx, thread_id=thread_id, agent=name, before=before, newest=MAX_READ_RUNS)
        for name in agents
    }
    page, last = newest_runs([run for of_agent in runs.values() for run in of_agent])
    out: list[dict[str, Any]] = []
    for name, of_agent in runs.items():
        messages = await load_conversation(tx, [run for run in of_agent if run.work_id in page])
        out += [{"agent": name, **message_wire(message)} for message in messages]
    return out, last


def newest_runs(runs: Sequence[PastRun]) -> tuple[set[str], str | None]:
    """Return the newest runs that fit into a page, at least one, and the oldest of them if there are older ones. Runs that
    started at the same moment stay together, because the next page begins before that moment."""
    page, size = list[PastRun](), 0
    for run in sorted(runs, key=lambda run: (run.started_at, run.work_id), reverse=True):
        size += run.size
        is_full = size > MAX_PAGE_BYTES or len(page) >= MAX_PAGE_RUNS
        if page and is_full and run.started_at != page[-1].started_at:
            return {each.work_id for each in page}, page[-1].work_id
        page.append(run)
    return {each.work_id for each in page}, None


def message_wire(message: Message) -> dict[str, Any]:
    return {"role": message.role, "blocks": [block_wire(b) for b in message.blocks]}
