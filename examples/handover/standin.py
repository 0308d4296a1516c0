"""Replacements for a model's writing, because a script cannot write about what it has not read.

The tool `compose` gets what its agent has read, and nothing else. It is there only where no model is asked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from plangate import define_tool
from pydantic import BaseModel, ConfigDict

from examples.handover import rates

_WEIGHT = re.compile(r"(\d+(?:\.\d+)?) kg")
_CHANGE = re.compile(r"Change `([^`]+)` to `([^`]+)`")


class Reading(BaseModel):
    model_config = ConfigDict(extra="forbid")

    what: Literal["design", "change"]
    about: str
    """What says what is wanted: a report for a design, a design or a verification for a change."""
    table: str


@define_tool(
    "compose",
    Reading,
    "Writes what a model would write after reading the same.",
    annotations={"read_only": True, "idempotent": True},
)
def compose(args: Mapping[str, Any], ctx: Any) -> dict[str, str]:
    reading = Reading.model_validate(args)
    return (design if reading.what == "design" else change)(reading.about, reading.table)


def design(report: str, table: str) -> dict[str, str]:
    """Return the fix for the fault in a report: `content` and `summary`."""
    found = _WEIGHT.search(report)
    if found is None:
        raise ValueError("The report names no weight.")
    weight = float(found[1])
    bands = rates.read(table).band
    below = max((b.below_kg for b in bands if b.below_kg <= weight), default=0.0)
    then = min((b.from_kg for b in bands if b.from_kg > weight), default=None)
    if then is None or any(b.from_kg <= weight < b.below_kg for b in bands):
        raise ValueError(f"The table has a price for {weight} kg.")
    return {
        "content": (
            f"# A price for {weight} kg\n\n"
            f"The table jumps from {below} kg to {then} kg. By the rules a band begins where the one before it\n"
            "ends, so the lighter one is made longer: the heavier one keeps its round number.\n\n"
            f"Change `below_kg = {below}` to `below_kg = {then}`.\n"
        ),
        "summary": f"Closes the gap that {weight} kg falls into: the band below it is made longer.",
    }


def change(wanted: str, table: str) -> dict[str, str]:
    """Return the first change that a text asks for: `old` and `new` for `edit`, and `summary`."""
    found = _CHANGE.search(wanted)
    if found is None:
        raise ValueError("The text asks for no change.")
    old, new = found.groups()
    if table.count(old) != 1:
        raise ValueError(f"The table has {old!r} {table.count(old)} times.")
    return {"old": old, "new": new, "summary": f"One boundary is {new.split()[-1]} kg now."}
