"""The events of the example for the eyes of a person: who publishes what, and which ids go into a prompt."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, ClassVar

from rich.console import Console
from rich.text import Text

from examples.common.render import Event, Screen, truncate
from examples.handover.system import ARCHITECT, CODER, COORDINATOR, TESTER

SHOWN = 120
_ARTIFACT = re.compile(r"art_[0-9a-z]{26}")
_TOLD = frozenset({"id", "path", "channel", "replaces", "what"})
"""Arguments that are shown: others hold what stands in files, or come again with what was published."""


class HandoverScreen(Screen):
    """The screen of an example, in the words of this one. What stands in files is not shown."""

    styles: ClassVar[Mapping[str, str]] = {
        COORDINATOR: "cyan",
        ARCHITECT: "magenta",
        CODER: "blue",
        TESTER: "green",
    }

    def __init__(self, console: Console, *, scripted: bool) -> None:
        super().__init__(console, scripted=scripted)
        self.published: list[dict[str, Any]] = []
        self._shows["artifact-published"] = self._artifact

    def _call(self, name: str, args: Mapping[str, Any]) -> Text:
        told = {key: value for key, value in args.items() if key in _TOLD}
        shown = super()._call(name, args if name == "call_agent" else told)
        if name == "call_agent" and self._scripted:
            ids = _ARTIFACT.findall(json.dumps(args["prompt"]))
            shown.append(f" about {', '.join(ids)}")
        return shown

    def _artifact(self, event: Event) -> None:
        record = event["data"]
        self.published.append(record)
        self.line(None, Text.assemble("→ published ", (record["id"], "bold"), f" {brief(record)}"))
        self.line(None, record.get("summary", ""), "dim")

    def lineage(self, lineage: Mapping[str, Any]) -> None:
        """Where an artifact comes from, one a line; the oldest first."""
        self.console.print("\nWhere the verification comes from:")
        steps = [*lineage["ancestors"], {"depth": 0, "artifact": lineage["artifact"]}]
        deepest = max(step["depth"] for step in steps)
        for step in sorted(steps, key=lambda step: -step["depth"]):
            record = step["artifact"]
            row = Text("  " * (deepest - step["depth"] + 1) + f"{record['id']} {brief(record)}")
            row.append(f": {truncate(record.get('summary', ''), SHOWN)}", "dim")
            self.console.print(row, soft_wrap=True)


def brief(record: Mapping[str, Any]) -> str:
    """Channel, path and producer of an artifact, and whether another one took its place."""
    by = record["producer"].get("agent") or "you"
    gone = "" if record["status"] == "active" else f", {record['status']}"
    return f"{record['channel']} {record['path']} by {by}{gone}"
