"""Asking the person at the terminal, while events and heartbeats go on."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

from rich.console import Console

from examples.flight_recovery.script import amount_in

Word = Literal["approve", "reject", "revise"]
Answer = TypeVar("Answer", bound=str)


@dataclass(frozen=True, slots=True)
class Decision:
    """What the person decided, and said about it."""

    word: Word
    feedback: str | None = None


APPROVED = Decision("approve")
INPUT_ENDED = Decision("reject", "The input ended before a decision.")


async def decide(console: Console, *, scripted: bool) -> Decision:
    """The decision, with feedback where it has one. The end of the input rejects."""
    word = await _answer(console, "approve, reject or revise? ", _word)
    if word is None:
        return INPUT_ENDED
    if word == "approve":
        return APPROVED
    if word == "reject":
        return Decision("reject", await _answer(console, "why? (may be empty) ", lambda line: line) or None)
    feedback = await (
        _new_amount(console) if scripted else _answer(console, "what should be different? ", _said)
    )
    return Decision("revise", feedback) if feedback else INPUT_ENDED


async def _new_amount(console: Console) -> str | None:
    """Feedback that a script can follow: it understands one amount and nothing else."""
    question = "another amount for the standard voucher, such as 50.00: "
    return await _answer(console, question, lambda line: line if amount_in(line) else None)


def _said(line: str) -> str | None:
    return line or None


def _word(line: str) -> Word | None:
    """The word that begins so, if only one does."""
    found: list[Word] = [word for word in get_args(Word) if line and word.startswith(line.lower())]
    return found[0] if len(found) == 1 else None


async def _answer(console: Console, question: str, parse: Callable[[str], Answer | None]) -> Answer | None:
    """The first line that parses; None at the end of the input."""
    while True:
        console.print(question, end="", style="bold yellow")
        line = await _line()
        if not line:
            console.print()
            return None
        parsed = parse(line.strip())
        if parsed is not None:
            return parsed


async def _line() -> str:
    """A line, read when it is there, so that no thread is left behind waiting for a key."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(sys.stdin.fileno())
    return sys.stdin.readline()
