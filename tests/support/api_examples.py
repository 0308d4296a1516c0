"""The examples of the API document: what a running service answered to the requests of `tests.support.api_world`.

`make examples` records them into app/api/examples.json, from which the document takes them. A test sends the requests again
and compares. Ids, moments, digests, tokens and durations differ from run to run, so placeholders stand for them.

    python -m tests.support.api_examples
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from tests.support.api_world import World, running_judge

FILE: Final = Path(__file__).parents[2] / "app" / "api" / "examples.json"
FIRST_MOMENT: Final = datetime(2026, 3, 2, 9, 30, tzinfo=UTC)
MOMENT_STEP_S: Final = 300
"""Moments are rounded down to steps, so that a slow run gives the same ones."""
FAR: Final = timedelta(days=365)
"""A moment this far away is a constant of a request."""
METRIC: Final = "plangate_queries"
"""The metric that the example of the metrics shows."""

ID: Final = re.compile(r"\b([a-z]{2,8})_([0-7][0-9a-hjkmnp-tv-z]{25})\b")
ID_TIME: Final = "01kjphwjg0"
MOMENT: Final = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)")
DIGEST: Final = re.compile(r"\b(?:[0-9a-f]{64}|[0-9a-f]{40})\b")
CREDENTIAL: Final = re.compile(r"\bpl[a-z]_\w{40,}")
ADDRESS: Final = re.compile(r"http://127\.0\.0\.1:\d+")
FOLDER: Final = re.compile(r"/[^\s\"]*/plangate-test-\w+")
STREAM_CURSOR: Final = re.compile(r"(?<=^id: ).*$", re.MULTILINE)

TOKENS: Final = {
    "nextCursor": "cursor",
    "cursor": "cursor",
    "after": "cursor",
    "claimToken": "token",
    "signingSecret": "secret",
}
"""Fields of opaque texts, and what the placeholder is called."""
CONSTANTS: Final = {"durationMs": 12, "pid": 4711, "host": "api-1", "silentS": 0.5}
"""Fields that differ from run to run in another way, and what stands for their values."""


class Placeholders:
    """Replaces what differs from run to run. The same text always has the same placeholder."""

    def __init__(self, start: datetime) -> None:
        self._start = start
        self._known: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def replace(self, value: Any, field: str = "") -> Any:
        """Return a JSON value with placeholders. `field` is the name of the field that has it."""
        match value:
            case dict():
                return {self._text(name): self.replace(item, name) for name, item in value.items()}
            case list():
                return [self.replace(item, field) for item in value]
            case str() if field in TOKENS and value:
                return self._numbered(TOKENS[field], value)
            case int() | float() | str() if field in CONSTANTS:
                return CONSTANTS[field]
            case str():
                return self._text(value)
        return value

    def _text(self, text: str) -> str:
        text = ID.sub(self._id, text)
        text = MOMENT.sub(self._moment, text)
        text = DIGEST.sub(self._digest, text)
        text = CREDENTIAL.sub(self._credential, text)
        text = STREAM_CURSOR.sub(lambda match: self._numbered("cursor", match[0]), text)
        return FOLDER.sub("/srv/data", ADDRESS.sub("http://127.0.0.1:9000", text))

    def _id(self, match: re.Match[str]) -> str:
        prefix = match[1]
        return self._placeholder(prefix, match[0], lambda n: f"{prefix}_{ID_TIME}{n:016d}")

    def _digest(self, match: re.Match[str]) -> str:
        chars = len(match[0])
        return self._placeholder("digest", match[0], lambda n: hashlib.sha256(b"%d" % n).hexdigest()[:chars])

    def _credential(self, match: re.Match[str]) -> str:
        return self._numbered(match[0][:3], match[0])

    def _numbered(self, kind: str, text: str) -> str:
        return self._placeholder(kind, text, lambda n: f"{kind}_{n}")

    def _moment(self, match: re.Match[str]) -> str:
        moment = datetime.fromisoformat(match[0])
        passed = moment - self._start
        if abs(passed) > FAR:
            return match[0]
        step = int(passed.total_seconds()) // MOMENT_STEP_S * MOMENT_STEP_S
        return (FIRST_MOMENT + timedelta(seconds=step)).isoformat().replace("+00:00", "Z")

    def _placeholder(self, kind: str, text: str, make: Callable[[int], str]) -> str:
        if text not in self._known:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._known[text] = make(self._counts[kind])
        return self._known[text]


def record() -> dict[str, Any]:
    """Return the examples of a new service by operation, with placeholders."""
    start = datetime.now(UTC)
    with running_judge() as judge:
        World(judge).build()
    metrics = judge.examples["readMetrics"]
    metrics["response"] = re.sub(rf"^(?!.*{METRIC}\b).*\n", "", metrics["response"], flags=re.MULTILINE)
    placeholders = Placeholders(start)
    return {name: placeholders.replace(judge.examples[name]) for name in sorted(judge.examples)}


def text(examples: Mapping[str, Any]) -> str:
    """Return the text of the file."""
    return json.dumps(examples, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(record()), "utf-8")
    sys.exit(0)
