"""The prompt of a query: text for a model, or the script that replaces one.

A script is JSON: the calls that an agent makes, one after the other. `{"$result": ...}` puts a value from the
results of the agent's earlier calls into the next one. The scripts of the others stand inside the coordinator's,
which puts in what it has itself: ids. What they will find out is quoted with `own`, and reaches them as it is.
"""

from __future__ import annotations

import json
from typing import Any

from examples.handover.system import ARCHITECT, CODER, DESIGN, PATCH, TESTER, VERIFICATION

Call = dict[str, Any]

ONLY_ARTIFACT = "artifacts[0].id"


def in_words(report: dict[str, Any]) -> str:
    """Return the task for a coordinator with a model."""
    return (
        f"A fault was reported. The report is the artifact {report['id']}; its summary: {report['summary']} Have it "
        "designed, patched and verified."
    )


def as_script(report: dict[str, Any]) -> str:
    """Return the same task for a coordinator without one: the first patch does not pass, and is patched again."""
    steps = [
        _ask(ARCHITECT, _architect(report["id"])),
        _ask(CODER, _coder(_result(f"[0].{ONLY_ARTIFACT}"))),
        _ask(TESTER, _tester(_result(f"[1].{ONLY_ARTIFACT}"), "verification/first.md")),
        _ask(CODER, _coder_again(_result(f"[2].{ONLY_ARTIFACT}"))),
        _ask(TESTER, _tester(_result(f"[3].{ONLY_ARTIFACT}"), "verification/second.md")),
    ]
    return json.dumps({"script": steps, "answer": _result("join(' ', [].artifacts[].summary)")})


def _architect(report: Any) -> dict[str, Any]:
    steps = [
        _call("artifact_get", id=report),
        _call("read", path=own("[0].path")),
        _call("read", path=own("[0].metadata.files[0]")),
        _call("read", path=own("[0].metadata.files[1]")),
        _call("compose", what="design", about=own("[1]"), table=own("[2]")),
        _call("write", path="design/bands.md", content=own("[4].content")),
        _call(
            "artifact_publish",
            channel=DESIGN,
            path=own("[5].path"),
            title="How the table is mended",
            summary=own("[4].summary"),
            parentArtifactIds=[own("[0].id")],
            metadata={"file": own("[0].metadata.files[0]")},
        ),
    ]
    return {"script": steps, "answer": own("[6].{id: id, summary: summary}")}


def _coder(design: Any) -> dict[str, Any]:
    steps = [
        _call("artifact_get", id=design),
        _call("read", path=own("[0].path")),
        _call("read", path=own("[0].metadata.file")),
        _call("compose", what="change", about=own("[1]"), table=own("[2]")),
        _call("edit", path=own("[0].metadata.file"), old=own("[3].old"), new=own("[3].new")),
        _call(
            "artifact_publish",
            channel=PATCH,
            path=own("[4].path"),
            kind="patch",
            title="The table, mended",
            summary=own("[3].summary"),
            parentArtifactIds=[own("[0].id")],
        ),
    ]
    return {"script": steps, "answer": own("[5].{id: id, summary: summary}")}


def _coder_again(verification: Any) -> dict[str, Any]:
    steps = [
        _call("artifact_get", id=verification),
        _call("read", path=own("[0].path")),
        _call("artifact_get", id=own("[0].parentArtifactIds[0]")),
        _call("read", path=own("[2].path")),
        _call("compose", what="change", about=own("[1]"), table=own("[3]")),
        _call("edit", path=own("[2].path"), old=own("[4].old"), new=own("[4].new")),
        _call(
            "artifact_publish",
            channel=PATCH,
            path=own("[5].path"),
            kind="patch",
            title="The table, mended again",
            summary=own("[4].summary"),
            replaces=own("[2].id"),
            parentArtifactIds=[own("[0].id")],
        ),
    ]
    return {"script": steps, "answer": own("[6].{id: id, summary: summary}")}


def _tester(patch: Any, path: str) -> dict[str, Any]:
    steps = [
        _call("artifact_get", id=patch),
        _call("read", path=own("[0].path")),
        _call("check_table", patch=own("[0].id")),
        _call("write", path=path, content=own("[2].report")),
        _call(
            "artifact_publish",
            channel=VERIFICATION,
            path=own("[3].path"),
            kind="report",
            title="What the check found",
            summary=own("[2].summary"),
            parentArtifactIds=[own("[0].id")],
            metadata={"passed": own("[2].passed")},
        ),
    ]
    return {"script": steps, "answer": own("[4].{id: id, passed: metadata.passed}")}


def own(expression: str) -> Call:
    """Return a `$result` of the agent that is called: the coordinator's is a literal, which is that object."""
    return _result(f"`{json.dumps(_result(expression))}`")


def _result(expression: str) -> Call:
    return {"$result": expression}


def _ask(agent: str, script: dict[str, Any]) -> Call:
    return _call("call_agent", agent=agent, prompt=script)


def _call(tool: str, **args: Any) -> Call:
    return {"tool": tool, "args": args}
