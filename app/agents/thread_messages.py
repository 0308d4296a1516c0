"""What the agents of a thread said and heard, for people."""

from __future__ import annotations

from typing import Any

from app.agents.memory import load_conversation
from app.base.postgres.database import Tx
from app.llm.codec import block_wire
from app.llm.messages import Message
from app.queries import store, threads


async def load_messages(tx: Tx, thread_id: str, agent: str | None) -> list[dict[str, Any]]:
    """Return the messages of each agent's finished runs in this thread, oldest first. Raise NotFound."""
    await threads.read_thread(tx, thread_id)
    agents = [agent] if agent is not None else await store.agents_of_thread(tx, thread_id)
    out: list[dict[str, Any]] = []
    for name in agents:
        out += [{"agent": name, **message_wire(m)} for m in await load_conversation(tx, thread_id, name)]
    return out


def message_wire(message: Message) -> dict[str, Any]:
    return {"role": message.role, "blocks": [block_wire(b) for b in message.blocks]}
