"""The hand-over example as a newcomer runs it, and the exact content of every prompt."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from examples.handover.__main__ import FAULTY, FILES, REPORT, RULES
from tests.processes.aimock.vendor_server import a_end, a_text, a_tool, sse
from tests.processes.test_demo import KEY_SHAPE, MODEL, Lab, Model, found

pytestmark = pytest.mark.long

Done = subprocess.CompletedProcess[str]
Record = dict[str, Any]

IDS = re.compile("art_[0-9a-z]{26}")
INPUT_TOKENS = 1000  # of each call of the model that plays here


class Depot(Lab):
    """A place of its own for the example."""

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "examples.handover", "--data-dir", str(self.data), *arguments]


def lines_of(text: str) -> set[str]:
    """What only a file says: its lines, but for those so short or so common that they say nothing."""
    return {line for line in text.splitlines() if len(line) >= 12 and not line.startswith("price_cents")}


SOURCES = {
    path: lines_of((FILES / path).read_text()) for path in (REPORT, FAULTY, RULES, "rates/abroad.toml")
}


def artifacts_of(client: httpx.Client, output: str) -> list[Record]:
    """All that the query published, oldest first."""
    query = found("qry_[0-9a-z]{26}", output)
    asked = {"queryId": query, "includeSuperseded": "true"}
    items: list[Record] = client.get("/artifacts", params=asked).raise_for_status().json()["items"]
    return items[::-1]


def steps(lineage: list[Record]) -> list[tuple[int, str, set[tuple[str, str]]]]:
    """Each step of a lineage, nearest first: its depth, its artifact, and the edges that lead to it."""
    return [
        (step["depth"], step["artifact"]["id"], {(edge["kind"], edge["via"]) for edge in step["edges"]})
        for step in lineage
    ]


def content(client: httpx.Client, record: Record) -> str:
    return client.get(f"/artifacts/{record['id']}/content").raise_for_status().text


# Without a model.


@pytest.fixture(scope="module")
def lab() -> Iterator[Depot]:
    made = Depot()
    yield made
    shutil.rmtree(made.folder)


@pytest.fixture(scope="module")
def first(lab: Depot) -> Done:
    return lab.run()


def test_the_second_patch_is_verified(lab: Depot, first: Done) -> None:
    assert first.returncode == 0, first.stdout + first.stderr
    assert first.stderr == ""
    said = " ".join(first.stdout.split())
    assert "→ published" in said and "Failed with 1 fault: the report names them." in said
    assert "patch rates/domestic.toml by coder, superseded: One boundary is 20.0 kg now." in said
    assert "Passed: every parcel has exactly one price." in said
    assert "6 agent runs, 35 tool calls" in said
    assert not KEY_SHAPE.search(first.stdout)
    assert list((lab.folder / "home").iterdir()) == []


def test_no_file_content_is_printed(first: Done) -> None:
    for lines in SOURCES.values():
        assert not [line for line in lines if line in first.stdout]


def test_artifacts_form_a_chain_from_report_to_verification(lab: Depot, first: Done) -> None:
    with lab.service() as client:
        made = artifacts_of(client, first.stdout)
        up = client.get(f"/artifacts/{made[-1]['id']}/lineage").json()
        report = up["ancestors"][-1]["artifact"]
        down = client.get(f"/artifacts/{report['id']}/lineage").json()
        now = client.get(f"/threads/{report['producer']['threadId']}/files/{FAULTY}").text
        patches = [content(client, a) for a in made if a["channel"] == "patch"]
    told = [(a["channel"], a["kind"], a["producer"]["agent"], a["status"]) for a in made]
    assert told == [
        ("design", "file", "architect", "active"),
        ("patch", "patch", "coder", "superseded"),
        ("verification", "report", "tester", "active"),
        ("patch", "patch", "coder", "active"),
        ("verification", "report", "tester", "active"),
    ]
    assert made[3]["replaces"] == made[1]["id"]
    assert [a["metadata"]["passed"] for a in made if a["channel"] == "verification"] == [False, True]
    assert (report["channel"], report["producer"]["kind"], report["path"]) == ("analysis", "host", REPORT)
    ids = [a["id"] for a in made]
    assert [a["parentArtifactIds"] for a in made] == [[id] for id in (report["id"], *ids[:-1])]
    design, rejected, failed, accepted, passed = ids
    assert steps(up["ancestors"]) == [
        (1, accepted, {("parent", passed)}),
        (2, rejected, {("replaces", accepted)}),
        (2, failed, {("parent", accepted)}),
        (3, design, {("parent", rejected)}),
        (4, report["id"], {("parent", design)}),
    ]
    assert steps(down["descendants"]) == [
        (1, design, {("parent", report["id"])}),
        (2, rejected, {("parent", design)}),
        (3, failed, {("parent", rejected)}),
        (3, accepted, {("replaces", rejected)}),
        (4, passed, {("parent", accepted)}),
    ]
    assert patches[0] != patches[1] == now  # the first one is still what it was


def test_the_coordinator_sees_only_ids_and_summaries(lab: Depot, first: Done) -> None:
    with lab.service() as client:
        made = artifacts_of(client, first.stdout)
        bodies = [content(client, a) for a in made]
        work = client.get(f"/queries/{found('qry_[0-9a-z]{26}', first.stdout)}/work").json()["items"]
    (run,) = [r for r in work if r["kind"] == "agent" and r["agent"] == "coordinator"]
    own = [r for r in work if r["id"] == run["id"] or r["parentId"] == run["id"]]
    assert [r["kind"] for r in own].count("model_call") == 6
    heard = json.dumps(own, ensure_ascii=False)
    for lines in (*SOURCES.values(), *map(lines_of, bodies)):
        assert lines and not [line for line in lines if line in heard]
    for artifact in made:
        assert artifact["id"] in heard and artifact["summary"] in heard


def test_each_agent_reads_only_its_inputs(lab: Depot, first: Done) -> None:
    with lab.service() as client:
        work = client.get(f"/queries/{found('qry_[0-9a-z]{26}', first.stdout)}/work").json()["items"]
    runs = {r["id"]: r["agent"] for r in work if r["kind"] == "agent"}
    read = defaultdict(list)
    for record in work:
        if record["kind"] == "tool_call" and record["name"] == "read":
            read[runs[record["parentId"]]].append(record["input"]["path"])
    assert read == {
        "architect": [REPORT, FAULTY, RULES],
        "coder": ["design/bands.md", FAULTY, "verification/first.md", FAULTY],
        "tester": [FAULTY, FAULTY],
    }


def test_the_lines_at_the_end_work(lab: Depot, first: Done) -> None:
    auth, *asked = (
        line.strip() for line in first.stdout.partition("The same over HTTP")[2].splitlines()[1:] if line
    )
    assert len(asked) == 4
    with lab.service() as client:
        address = str(client.base_url).rstrip("/")
        for line in asked:
            script = f"{auth}\n{line.replace('http://127.0.0.1:8711', address)}"
            script = script.replace("curl -s", "curl -s --fail")
            done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=30)
            assert done.returncode == 0 and done.stdout.strip(), script


def test_an_invalid_command_line_is_rejected(lab: Depot) -> None:
    assert lab.run("--url", "http://127.0.0.1:1").returncode == 2


# With a model: a server that answers as a good model would, in the vendor's own format, from what it is sent.


class Workshop(Model):
    """Plays the four agents. Which one it is, it reads from the system prompt."""

    def _turn(self, body: Record) -> list[str]:
        asked = json.dumps(body["system"])
        play = next(play for begins, play in PLAYS.items() if begins in asked)
        said = play(heard_in(body))
        usage = {"input_tokens": INPUT_TOKENS, "output_tokens": 1}
        message = {"id": "m", "type": "message", "role": "assistant", "model": MODEL, "content": []}
        start = sse("message_start", message={**message, "stop_reason": None, "usage": usage})
        if isinstance(said, str):
            return [start, *a_text(0, said), *a_end()]
        name, args = said
        return [start, *a_tool(0, f"toolu_{len(self.bodies)}", name, json.dumps(args)), *a_end("tool_use")]

    def prompts(self) -> dict[str, list[str]]:
        """Every body that was sent, by its agent."""
        sent = defaultdict(list)
        for body in self.bodies:
            (begins,) = [b for b in PLAYS if b in json.dumps(json.loads(body)["system"])]
            sent[PLAYS[begins].__name__.strip("_")].append(body)
        return sent


def heard_in(body: Record) -> list[str]:
    """What the user and the tools said since the newest prompt, which is the first."""
    texts: list[str] = []
    for message in body["messages"]:
        if message["role"] != "user":
            continue
        blocks = message["content"]
        blocks = [{"type": "text", "text": blocks}] if isinstance(blocks, str) else blocks
        for block in blocks:
            if block["type"] == "text":
                texts = [block["text"]]
            else:
                parts = block["content"]
                texts.append(parts if isinstance(parts, str) else "".join(part["text"] for part in parts))
    return texts


def _coordinator(heard: list[str]) -> Any:
    """It knows what call_agent answered: ids and summaries. It looks at nothing else."""
    if len(heard) == 1:
        return "call_agent", {"agent": "architect", "prompt": f"The report is {IDS.findall(heard[0])[0]}."}
    (made,) = json.loads(heard[-1])["artifacts"]
    assert set(made) >= {"id", "channel", "summary"}
    if made["channel"] == "verification" and "Passed" in made["summary"]:
        return f"Done: {made['summary']}"
    agent = "tester" if made["channel"] == "patch" else "coder"
    return "call_agent", {"agent": agent, "prompt": f"Work on the {made['channel']} {made['id']}."}


def _architect(heard: list[str]) -> Any:
    match len(heard):
        case 1:
            return "artifact_get", {"id": IDS.findall(heard[0])[0]}
        case 2:
            return "read", {"path": json.loads(heard[1])["path"]}
        case 3 | 4:
            return "read", {"path": json.loads(heard[1])["metadata"]["files"][len(heard) - 3]}
        case 5:
            assert "19.95 kg" in heard[2] and "below_kg = 19.9\n" in heard[3] and "begins where" in heard[4]
            text = "The tenth kilogram and what follows is missing.\nChange `below_kg = 19.9` to `below_kg = 20.0`.\n"
            return "write", {"path": "design/plan.md", "content": text}
        case 6:
            report = json.loads(heard[1])
            parts = {"summary": "A gap is closed.", "metadata": {"file": report["metadata"]["files"][0]}}
            path = json.loads(heard[5])["path"]
            ids = {"parentArtifactIds": [report["id"]]}
            return "artifact_publish", {"channel": "design", "path": path, **parts, **ids}
    return f"The design is {json.loads(heard[6])['id']}."


def _coder(heard: list[str]) -> Any:
    given = json.loads(heard[1]) if len(heard) > 1 else {}
    again = given.get("channel") == "verification"
    if len(heard) == 1:
        return "artifact_get", {"id": IDS.findall(heard[0])[0]}
    if len(heard) == 2:
        return "read", {"path": given["path"]}
    if again and len(heard) == 3:
        return "artifact_get", {"id": given["parentArtifactIds"][0]}
    replaced = json.loads(heard.pop(3)) if again else {}
    match len(heard):
        case 3:
            return "read", {"path": replaced.get("path") or given["metadata"]["file"]}
        case 4:
            old, new = re.findall("Change `([^`]+)` to `([^`]+)`", heard[2])[0]
            assert heard[3].count(old) == 1
            return "edit", {"path": FAULTY, "old": old, "new": new}
        case 5:
            parts = {"kind": "patch", "summary": "One boundary moved.", "parentArtifactIds": [given["id"]]}
            parts |= {"replaces": replaced["id"]} if again else {}
            path = json.loads(heard[4])["path"]
            return "artifact_publish", {"channel": "patch", "path": path, **parts}
    return f"The patch is {json.loads(heard[5])['id']}."


def _tester(heard: list[str]) -> Any:
    match len(heard):
        case 1:
            return "artifact_get", {"id": IDS.findall(heard[0])[0]}
        case 2:
            return "read", {"path": json.loads(heard[1])["path"]}
        case 3:
            assert "[[band]]" in heard[2]
            return "check_table", {"patch": json.loads(heard[1])["id"]}
        case 4:
            path = f"verification/{json.loads(heard[1])['id']}.md"
            return "write", {"path": path, "content": json.loads(heard[3])["report"]}
        case 5:
            patch, checked = json.loads(heard[1]), json.loads(heard[3])
            parts = {"kind": "report", "summary": checked["summary"], "parentArtifactIds": [patch["id"]]}
            parts |= {"metadata": {"passed": checked["passed"]}}
            path = json.loads(heard[4])["path"]
            return "artifact_publish", {"channel": "verification", "path": path, **parts}
    return f"The verification is {json.loads(heard[5])['id']}."


PLAYS: dict[str, Callable[[list[str]], Any]] = {
    "You coordinate repairs": _coordinator,
    "You design repairs": _architect,
    "You change tables": _coder,
    "You verify patches": _tester,
}


class Asked:
    """A run with a model: what it said, every prompt, and what the service has on record afterwards."""

    def __init__(self, lab: Depot, done: Done, prompts: dict[str, list[str]]) -> None:
        self.done = done
        self.prompts = prompts
        with lab.service() as client:
            self.made = artifacts_of(client, done.stdout)
            self.bodies = [content(client, record) for record in self.made]
            self.usage = {
                by: client.get("/usage", params={"groupBy": by}).json() for by in ("artifact", "channel")
            }

    def sees(self, agent: str, text: str) -> bool:
        """Whether the long lines of a text, which no other has, stand in any prompt of the agent: all or none."""
        lines = [json.dumps(line)[1:-1] for line in lines_of(text) if len(line) >= 30]
        assert lines
        seen = [line for line in lines if any(line in body for body in self.prompts[agent])]
        assert not seen or len(seen) == len(lines), seen
        return bool(seen)


@pytest.fixture(scope="module")
def asked() -> Iterator[Asked]:
    lab, model = Depot(), Workshop()

    async def run() -> Done:
        await model.start()
        try:
            environment = {"ANTHROPIC_API_KEY": "sk-demo-key", "ANTHROPIC_BASE_URL": model.url}
            return await asyncio.to_thread(lab.run, **environment)
        finally:
            await model.stop()

    done = asyncio.run(run())
    assert done.returncode == 0, done.stdout + done.stderr
    yield Asked(lab, done, model.prompts())
    shutil.rmtree(lab.folder)


@pytest.mark.long
def test_a_model_hands_over_in_the_same_way(asked: Asked) -> None:
    assert "“Done: Passed: every parcel has exactly one price.”" in asked.done.stdout
    assert [a["channel"] for a in asked.made] == ["design", "patch", "verification", "patch", "verification"]
    assert {agent: len(bodies) for agent, bodies in asked.prompts.items()} == {
        "coordinator": 6,
        "architect": 7,
        "coder": 6 + 7,
        "tester": 6 + 6,
    }
    assert "sk-demo-key" not in asked.done.stdout


@pytest.mark.long
def test_no_prompt_of_the_coordinator_has_a_line_of_any_file(asked: Asked) -> None:
    assert len(asked.prompts["coordinator"]) == 6
    for lines in (*SOURCES.values(), *map(lines_of, asked.bodies)):
        for line in lines:
            written = json.dumps(line)[1:-1]
            assert not [body for body in asked.prompts["coordinator"] if line in body or written in body]
    last = asked.prompts["coordinator"][-1]
    assert set(IDS.findall(last)) >= {a["id"] for a in asked.made}
    assert all(a["summary"] in last for a in asked.made)


@pytest.mark.long
def test_prompts_to_agents_are_ids(asked: Asked) -> None:
    """What the coordinator wrote, as the agents got it."""
    told = {json.loads(body)["messages"][0]["content"][0]["text"] for body in asked.prompts["tester"]}
    assert [IDS.sub("ID", text) for text in told] == ["Work on the patch ID."] * 2


@pytest.mark.long
def test_each_agent_sees_only_its_files(asked: Asked) -> None:
    design, _, failed, _, _ = asked.bodies
    texts = {path: (FILES / path).read_text() for path in SOURCES}
    files = {**texts, "design": design, "failed": failed}
    seen = {
        agent: {name for name, text in files.items() if asked.sees(agent, text)} for agent in asked.prompts
    }
    assert seen == {
        "coordinator": set(),
        "architect": {REPORT, FAULTY, RULES, "design"},
        "coder": {"design", FAULTY, "failed"},
        "tester": {FAULTY, "failed"},
    }


@pytest.mark.long
def test_usage_has_the_cost_of_each_artifact_and_channel(asked: Asked) -> None:
    by_channel = {g["key"]: g for g in asked.usage["channel"]["items"]}
    by_artifact = {g["key"]: g for g in asked.usage["artifact"]["items"]}
    assert {a["id"] for a in asked.made} <= set(by_artifact)
    assert all(by_artifact[a["id"]]["costUsd"] > 0 for a in asked.made)
    calls = {name: by_channel[name]["modelCalls"] for name in ("design", "patch", "verification")}
    assert calls == {"design": 7, "patch": 6 + 7, "verification": 6 + 6}
    for name, spent in calls.items():
        assert by_channel[name]["usage"]["inputTokens"] == spent * INPUT_TOKENS
        of_artifacts = [by_artifact[a["id"]]["costUsd"] for a in asked.made if a["channel"] == name]
        assert by_channel[name]["costUsd"] == pytest.approx(sum(of_artifacts))
    total = asked.usage["channel"]["totals"]
    assert total["modelCalls"] == sum(len(bodies) for bodies in asked.prompts.values())
