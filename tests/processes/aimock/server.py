"""aimock, a server that imitates Anthropic and OpenAI, started for a test.

    with running_aimock([fixture, ...]) as base_url:
        ...  # kind "anthropic": baseUrl is base_url; kind "openai": baseUrl is f"{base_url}/v1"

It is installed from npm (package.json and package-lock.json beside this file, see tests/support/programs.py) and listens
on a free port of loopback.

A fixture is a JSON object, `{"match": {...}, "response": {...}}`, the same for every vendor. The first one
whose every condition holds answers; a request that none answers gets a 503 (strict mode). Fixtures are
checked at the start: tool arguments that are no JSON, for one, are refused.

`match`:
- `userMessage`: a part of the text of the last user message. Mind parts of words: "hi" matches "nothing".
- `systemMessage`: a part of the system prompt, or a list of parts. What tells agents apart.
- `model`: the model's id. `toolName`: a tool that is on offer.
- `turnIndex`: how many assistant messages the request holds: 0 is the first turn of a run without memory.
- `hasToolResult`: whether tool results stand after the last user text.
- `toolCallId`, `toolResultContains`: about the last message, where it is a tool result.
- `sequenceIndex`: how often the same match was asked before, from 0: for a failure, then success.

`response`, one of:
- `{"content": "text"}`; `"reasoning"` beside it is thinking, `"reasoningSignature"` its signature.
- `{"toolCalls": [{"id", "name", "arguments": {...}}, ...]}`, in parallel; with `content` before them.
- `{"blocks": [{"type": "text", "text"}, {"type": "toolCall", "id", "name", "arguments"}]}`: any order.
- `{"error": {"message", "type"}, "status": 429, "retryAfter": 3}`: retryAfter is in seconds.
Any but the last takes `"usage"`, `"model"` and `"finishReason"` too ("stop", "tool_calls", "length").

Beside `match` and `response`: `truncateAfterChunks` breaks the stream off after so many chunks,
`disconnectAfterMs` after a time, `latency` is the time between chunks in milliseconds, `chunkSize` their
length in characters, `chaos` (`{"malformedRate": 1.0}`, ...) spoils answers.

Helpers below write the usual ones: `says`, `calls`, `fails`, `script`.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.programs import npm_program

START_S = 30.0

Fixture = Mapping[str, Any]


class AimockFailed(Exception):
    """It does not start; the message holds what it printed."""


def says(text: str, *, user: str | None = None, **more: Any) -> Fixture:
    """A turn of text. `more` are further conditions, such as `turnIndex=1` or `systemMessage="You plan"`."""
    return {"match": _match(user, more), "response": {"content": text}}


def calls(*tools: tuple[str, Any], user: str | None = None, **more: Any) -> Fixture:
    """A turn of tool calls in parallel, each `(name, arguments)`; the ids are `call_<name>_<position>`."""
    made = [
        {"id": f"call_{name}_{at}", "name": name, "arguments": arguments}
        for at, (name, arguments) in enumerate(tools)
    ]
    return {"match": _match(user, more), "response": {"toolCalls": made}}


def fails(
    status: int, kind: str, *, retry_after_s: int | None = None, user: str | None = None, **more: Any
) -> Fixture:
    """An error answer; `kind` is the vendor's `error.type`. `sequenceIndex=0` makes it fail once only."""
    response: dict[str, Any] = {"error": {"message": f"{kind} on purpose", "type": kind}, "status": status}
    if retry_after_s is not None:
        response["retryAfter"] = retry_after_s
    return {"match": _match(user, more), "response": response}


def script(*turns: Fixture, **match: Any) -> list[Fixture]:
    """The turns of one agent in order, told apart by `turnIndex`; `match` is what all of them share."""
    return [{**turn, "match": {**turn["match"], **match, "turnIndex": at}} for at, turn in enumerate(turns)]


@contextmanager
def running_aimock(fixtures: Sequence[Fixture]) -> Iterator[str]:
    """Run aimock with these fixtures and give its address, such as `http://127.0.0.1:40123`.

    Raises AimockFailed, NotInstalled. On the way out the process is ended and its files are removed.
    """
    node, modules = npm_program("aimock")
    program = modules / "@copilotkit" / "aimock" / "dist" / "cli.js"
    with tempfile.TemporaryDirectory(prefix="aimock-") as folder:
        file, log = Path(folder, "fixtures.json"), Path(folder, "log")
        file.write_text(json.dumps({"fixtures": list(fixtures)}))
        command = [node, str(program), "--host", "127.0.0.1", "--port", "0", "--strict", "-f", str(file)]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*command, "--validate-on-load"],
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=folder,
                env={"PATH": os.environ["PATH"], "HOME": folder, "AIMOCK_STRICT_TURN_INDEX": "1"},
            )
        try:
            yield _address(process, log)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def journal(base_url: str) -> list[dict[str, Any]]:
    """Every request it got, oldest first: `path`, `headers`, `body`, and `response` with its `status`."""
    with urllib.request.urlopen(f"{base_url}/__aimock/journal", timeout=10) as answer:
        entries: list[dict[str, Any]] = json.load(answer)
    return entries


def _match(user: str | None, more: Mapping[str, Any]) -> dict[str, Any]:
    return {**({} if user is None else {"userMessage": user}), **more}


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Where it says that it listens, once it does."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        found = re.search(r"listening on (http://127\.0\.0\.1:\d+)", log.read_text())
        if found:
            return found[1]
        if process.poll() is not None:
            break
        time.sleep(0.02)
    raise AimockFailed(f"aimock did not start:\n{log.read_text()}")
