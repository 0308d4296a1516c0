"""Prompts to the person at the terminal while events and heartbeats continue."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

from rich.console import Console

Word = Literal["approve", "reject", "revise"]
Answer = TypeVar("Answer", bound=str)


@dataclass(frozen=True, slots=True)
class Decision:
    """The person's decision and feedback."""

    word: Word
    feedback: str | None = None


@dataclass(frozen=True, slots=True)
class RevisionChoice:
    """How feedback is asked for: the question, and whether an answer is one. A script may understand few."""

    question: str = "what should be different? "
    is_answer: Callable[[str], object] = bool


APPROVED = Decision("approve")
INPUT_ENDED = Decision("reject", "The input ended before a decision.")


async def decide(console: Console, revising: RevisionChoice | None) -> Decision:
    """Return the decision, with feedback where it has one. The end of the input rejects. `revising` is None where
    nothing can be revised."""
    words = [word for word in get_args(Word) if revising or word != "revise"]
    question = f"{', '.join(words[:-1])} or {words[-1]}? "
    word = await _answer(console, question, lambda line: _word(line, words))
    if word is None:
        return INPUT_ENDED
    if word == "approve":
        return APPROVED
    if word == "reject" or revising is None:
        return Decision("reject", await _answer(console, "why? (may be empty) ", lambda line: line) or None)
    feedback = await _answer(
        console, revising.question, lambda line: line if revising.is_answer(line) else None
    )
    return Decision("revise", feedback) if feedback else INPUT_ENDED


def _word(line: str, words: list[Word]) -> Word | None:
    """Return the word that begins so, if only one does."""
    found = [word for word in words if line and word.startswith(line.lower())]
    return found[0] if len(found) == 1 else None


async def _answer(console: Console, question: str, parse: Callable[[str], Answer | None]) -> Answer | None:
    """Return the first line that parses; None at the end of the input."""
    while True:
        console.print(question, end="", style="bold yellow")
        line = await read_line()
        if not line:
            console.print()
            return None
        parsed = parse(line.strip())
        if parsed is not None:
            return parsed
        console.print("That is no answer to this.", style="dim")


async def read_line() -> str:
    """Return a line, read when it is there, so that no thread is left behind waiting for a key."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(sys.stdin.fileno())
    return sys.stdin.readline()
