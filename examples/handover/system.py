"""The system of agents as data: prompts, tools, and the check, a Python function.

The coordinator has no tool that reads a file: what it knows is ids and summaries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plangate import (
    DefinedRuntime,
    define_coordinator,
    define_runtime,
    define_specialist,
    define_tenant,
    define_tool,
    layered_prompt,
)
from pydantic import BaseModel, ConfigDict

from examples.handover.rates import find_faults
from examples.handover.standin import compose

COORDINATOR, ARCHITECT, CODER, TESTER = "coordinator", "architect", "coder", "tester"
ANALYSIS, DESIGN, PATCH, VERIFICATION = "analysis", "design", "patch", "verification"

PLAIN = "Short and factual. Plain text, no Markdown."


class Check(BaseModel):
    """What `check_table` takes: an id, so that what is checked is what was published, to the byte."""

    model_config = ConfigDict(extra="forbid")

    patch: str


class Checked(BaseModel):
    """The findings of a check, and its report."""

    passed: bool
    summary: str
    report: str


@define_tool(
    "check_table",
    Check,
    "Checks a table of rates that was published, by its id: that every parcel has exactly one price, and that a "
    "heavier band is never cheaper. Returns whether it passed, a summary, and the report to be published.",
    output_schema=Checked,
    annotations={"read_only": True, "idempotent": True},
)
def check_table(args: Mapping[str, Any], ctx: Any) -> Checked:
    table = ctx.artifacts.read(Check.model_validate(args).patch)
    found = find_faults(table.decode())
    if not found:
        return Checked(
            passed=True,
            summary="Passed: every parcel has exactly one price.",
            report="# The table passed\n\nNo gap and no overlap between bands, and prices rise with weight.\n",
        )
    count = f"{len(found)} fault{'s' if len(found) > 1 else ''}"
    lines = "".join(f"- {fault}\n" for fault in found)
    return Checked(
        passed=False,
        summary=f"Failed with {count}: the report names them.",
        report=f"# The table did not pass\n\n{count} found by going through the bands in order:\n\n{lines}",
    )


def define(*, tenant: str, model: str, scripted: bool) -> DefinedRuntime:
    """Return the whole system. `scripted`: agents follow scripts, and `compose` writes for them."""
    asked = {"id": model, "provider": "anthropic"}
    standin = [compose] if scripted else []
    architect = define_specialist(
        ARCHITECT,
        asked,
        layered_prompt(
            identity="You design repairs of tables of rates.",
            communication=PLAIN,
            operational_rules=[
                "You are given the id of a report. Get its record with artifact_get. Read the file at its path "
                "and the files that its metadata names, and no others.",
                "Write the design to a file of its own: what is wrong, why, and what to change, exactly.",
                f"Publish it with artifact_publish on the channel {DESIGN}: a title, a summary that tells what others must "
                "know without reading it, the report's id in parentArtifactIds, and metadata "
                '{"file": the path of the one file to change}.',
                "Answer with the id and the summary.",
            ],
        ),
        tools=standin,
        toolkits=[_files("read", "write")],
    )
    coder = define_specialist(
        CODER,
        asked,
        layered_prompt(
            identity="You change tables of rates as a design or a verification says.",
            communication=PLAIN,
            operational_rules=[
                "You are given the id of a design, or of a verification that failed. Get its record with "
                "artifact_get and read the file at its path.",
                "Of a design, its metadata names the file to change; of a verification, its parent is the patch, "
                "whose path is that file. Read it, and no others. Change it with edit, and nothing that was not asked "
                "for.",
                f"Publish the changed file with artifact_publish on the channel {PATCH}, kind patch, with a title, a summary, "
                "and the id that you were given in parentArtifactIds. A patch after a failed verification "
                "replaces the patch that failed.",
                "Answer with the id and the summary.",
            ],
        ),
        tools=standin,
        toolkits=[_files("read", "edit")],
    )
    tester = define_specialist(
        TESTER,
        asked,
        layered_prompt(
            identity="You verify patches of tables of rates.",
            communication=PLAIN,
            operational_rules=[
                "You are given the id of a patch. Get its record with artifact_get, read the file at its path, "
                "and no others, and call check_table with the id.",
                "Write the report of check_table to a file of its own, and publish it with artifact_publish on "
                f"the channel {VERIFICATION}, kind report, with a title, the summary of check_table, the patch's id in "
                'parentArtifactIds, and metadata {"passed": true or false}.',
                "Answer with the id, and whether it passed.",
            ],
        ),
        tools=[check_table],
        toolkits=[_files("read", "write")],
    )
    coordinator = define_coordinator(
        COORDINATOR,
        asked,
        layered_prompt(
            identity="You coordinate repairs of tables of rates. You know files by their ids and summaries only.",
            communication=PLAIN,
            operational_rules=[
                f"Call {ARCHITECT} with the id of the report, then {CODER} with the id of the design, then "
                f"{TESTER} with the id of the patch. Answers of call_agent list what was published.",
                f"If the verification failed, call {CODER} with its id, and {TESTER} with the id of the new patch. "
                "Give up after three patches.",
                "In a prompt to an agent give ids, and say what they are of. Never put content into it.",
                "At the end say in one or two sentences what was found and done, from the summaries.",
            ],
        ),
        routes=[architect, coder, tester],
        toolkits=[_files(), {"id": "artifacts", "config": {"tools": ["artifact_get", "artifact_list"]}}],
    )
    return define_runtime(
        define_tenant(tenant),
        [coordinator, architect, coder, tester],
        name="handover",
        interpreter="scripted" if scripted else None,
    )


def _files(*tools: str) -> dict[str, Any]:
    """Return what an agent may do with files."""
    return {"id": "workspace", "config": {"tools": list(tools)}}
