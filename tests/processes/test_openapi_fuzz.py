"""A running service answers as its OpenAPI document says: every operation once on purpose, then with what a fuzzer
thinks of, then with values that have broken services before.

The document is taken at its word: an answer of a status that it does not list, another content type, a field that it
does not know, a header that it promises and that is missing are failures, although clients must bear new fields.
"""

from __future__ import annotations

import contextlib
import copy
import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import jsonschema_rs
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from app.api.openapi import operations, scope_of
from tests.support.mcp import fake_mcp_in_a_thread

pytestmark = pytest.mark.long

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
TENANT = "fuzzed"
JSON = "application/json"
BYTES = "application/octet-stream"
SSE = "text/event-stream"
FUZZ_S = 25.0
"""Time for the fuzzer, over all operations."""
EXAMPLES = 8
"""Of each operation and kind of data, while there is time."""
ELSEWHERE = ["copyFile"]
"""Operations that this file cannot bring to a success: a workspace on a machine of the user, test_client_workspace.py."""
ENDLESS = {"streamToolCalls", "streamEvents"}
STREAMS = {"streamQuery", "streamNewQuery"}
"""What the fuzzer leaves out: it can read an answer only whole, and these may follow a query that waits."""

NUMBERS = {
    "type": "object",
    "properties": {"numbers": {"type": "array", "items": {"type": "integer"}}},
    "required": ["numbers"],
}
PAYMENT = {
    "type": "object",
    "properties": {"kind": {"const": "pay"}, "amount": {"type": "integer"}},
    "required": ["kind", "amount"],
    "additionalProperties": False,
}
SPEC = {
    "name": "fuzzed",
    "tenant": {"resourceId": TENANT},
    "interpreter": "scripted",
    "agents": [
        {
            "name": "worker",
            "role": "specialist",
            "model": {"id": "none"},
            "tools": ["look", "spend"],
            "toolkits": ["references"],
        },
        {"name": "planner", "role": "planner", "model": {"id": "none"}, "plan": "Payments"},
    ],
    "references": [
        {"name": "Numbers", "schema": NUMBERS, "glimpse": {"count": "length(numbers)"}},
        {"name": "Fleeting", "schema": NUMBERS, "ttlMs": 0},
    ],
    "plans": [
        {
            "name": "Payments",
            "schema": {
                "type": "object",
                "properties": {"actions": {"type": "array", "items": PAYMENT}},
                "required": ["actions"],
            },
        }
    ],
    "tools": [
        {"name": "look", "description": "Looks.", "inputSchema": {"type": "object"}},
        {
            "name": "spend",
            "description": "Spends.",
            "inputSchema": {"type": "object"},
            "approval": {"kind": "always", "rememberable": True},
        },
    ],
    "actionDispatchers": {"pay": "client"},
}
BODY = {"actions": [{"kind": "pay", "amount": 7}]}


class Service:
    """`plangate serve` on a data directory of its own, with the operator's key of the machine."""

    def __init__(self, folder: Path) -> None:
        self._log = (folder / "log").open("w+")
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("PLANGATE_", "DATABASE_URL"))}
        environment["PLANGATE_ALLOW_HOSTS"] = "127.0.0.1"
        self.table = folder / "orders.csv"
        self.table.write_text("id,cents\n1,250\n2,975\n")
        environment["PLANGATE_SOURCE_PATHS"] = str(folder)
        command = [str(Path(sys.executable).with_name("plangate")), "serve", "--port", "0"]
        self._process = subprocess.Popen(
            [*command, "--data-dir", str(folder / "data")],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        found = re.search(r"http://\S+", said)
        assert found, f"{said}{self.log()}"
        self.url = found[0]
        self.key = (folder / "data" / "local-key").read_text().strip()
        self.headers = {"Authorization": f"Bearer {self.key}", "Plangate-Tenant": TENANT}
        eventually(lambda: httpx.get(f"{self.url}/readyz").status_code == 200)

    def log(self) -> str:
        self._log.flush()
        self._log.seek(0)
        return self._log.read()

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
        self._log.close()


def eventually(look: Callable[[], Any], seconds: float = 15) -> Any:
    """What `look` gives once it is true."""
    end = time.monotonic() + seconds
    while not (found := _quietly(look)):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)
    return found


def _quietly(look: Callable[[], Any]) -> Any:
    try:
        return look()
    except httpx.TransportError:
        return None


def strictly(document: dict[str, Any]) -> dict[str, Any]:
    """The document without its loopholes: no `default` answer, and no field beyond those that it names."""
    strict = copy.deepcopy(document)
    for _, _, operation in operations(strict):
        operation["responses"].pop("default", None)
    for name, schema in strict["components"]["schemas"].items():
        if "properties" in schema and name != "Problem":
            schema.setdefault("additionalProperties", False)
    return strict


class Judge:
    """Sends requests and holds every answer against the document. `answers` counts them by operation and status."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.document = httpx.get(f"{service.url}/openapi.json").json()
        strict = strictly(self.document)
        self.schema = schemathesis.openapi.from_dict(strict)
        self.answers: Counter[tuple[str, int]] = Counter()
        self.session = requests.Session()
        self.operations = {
            found.ok().definition.raw["operationId"]: found.ok() for found in self.schema.get_all_operations()
        }
        self._event = jsonschema_rs.validator_for(
            {"$ref": "#/components/schemas/Event", "components": strict["components"]}
        )

    def send(self, name: str, path: dict[str, Any] | None = None, body: Any = None, **parts: Any) -> Any:
        """One request that is to succeed; gives the JSON of the answer."""
        case = self.operations[name].Case(
            path_parameters=path or {},
            query=parts.get("query", {}),
            headers=parts.get("headers", {}),
            **({} if body is None else {"body": body, "media_type": parts.get("media_type", JSON)}),
        )
        answer = self.judge(case)
        assert answer.status_code == parts.get("status", answer.status_code), answer.text
        assert answer.status_code < 300 or "status" in parts, f"{name}: {answer.text}"
        return answer.json()

    def judge(self, case: Any) -> Any:
        answer = self._call(case)
        if answer.status_code == 503:  # documented, and a slow machine may answer so, but not twice
            answer = self._call(case)
        case.validate_response(answer, checks=CHECKS)
        self.count(case.operation.definition.raw["operationId"], answer.status_code)
        return answer

    def _call(self, case: Any) -> Any:
        own = {} if "Cookie" in case.headers else self.service.headers
        headers = {**case.headers, "Accept": JSON, **own}
        return case.call(base_url=self.service.url, session=self.session, headers=headers, timeout=10)

    def count(self, name: str, status: int) -> None:
        self.answers[name, status] += 1

    def stream(self, name: str, method: str, path: str, messages: int, **parts: Any) -> list[dict[str, Any]]:
        """The first messages of a stream; events are held against the catalogue."""
        headers = self.service.headers
        found: list[dict[str, Any]] = []
        with httpx.stream(method, self.service.url + path, headers=headers, timeout=15, **parts) as answer:
            declared = self.operations[name].definition.raw["responses"][str(answer.status_code)]
            assert answer.headers["content-type"].partition(";")[0] == SSE
            assert SSE in declared["content"]
            assert all(header.lower() in answer.headers for header in declared.get("headers", {}))
            event = None
            for line in answer.iter_lines():
                if line.startswith("event: "):
                    event = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    data = json.loads(line.removeprefix("data: "))
                    if event != "calls":
                        assert data["type"] == event
                        self._event.validate(data)
                    found.append(data)
                if len(found) == messages:
                    break
        self.count(name, answer.status_code)
        return found

    def unanswered(self) -> list[str]:
        """Operations that nothing succeeded of."""
        good = {name for name, status in self.answers if status < 300}
        return sorted(set(self.operations) - good)


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with tempfile.TemporaryDirectory(prefix="plangate-fuzz-", dir="/tmp") as folder:
        service = Service(Path(folder))
        try:
            judge = Judge(service)
            yield judge
            judge.session.close()
        finally:
            log = service.log()
            service.stop()
    assert "internal_error" not in log, log[-20_000:]


class World:
    """The states that operations need, each reached by the operations before it."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.ids: dict[str, str] = {}

    def build(self) -> dict[str, str]:
        """Drives every operation to each of its successes; gives ids that path parameters can name afterwards."""
        self.operate()
        self.runtimes()
        self.references()
        self.queries()
        self.work()
        self.files()
        self.tools()
        self.mcp_servers()
        self.plans()
        self.unknown_outcome()
        self.approvals()
        self.streams()
        self.keys_and_secrets()
        self.sessions()
        self.memory()
        self.sources()
        return self.ids

    def sessions(self) -> None:
        send, judge = self.judge.send, self.judge
        assert send("whoami")["tenant"] == TENANT
        ticket = send("createTicket")["ticket"]
        case = judge.operations["startSession"].Case(
            body={"ticket": ticket}, media_type=JSON, headers={"Cookie": "a=b"}
        )
        answer = judge.judge(case)
        assert answer.status_code == 200, answer.text
        cookies = answer.headers["set-cookie"][0].partition(";")[0]
        judge.session.cookies.clear()
        send("endSession", headers={"Cookie": cookies, "Plangate-Request": "1"})
        judge.session.cookies.clear()
        send("endSession", status=409)

    def memory(self) -> None:
        send, place = self.judge.send, {"runtime": "fuzzed", "resource": TENANT}
        send("writeMemory", place, {"path": "†memory.seen", "value": {"n": [None]}}, status=201)
        assert send("readMemory", place)["document"]
        assert send("listMemoryWrites", place)["items"]
        send("deleteMemory", place)
        self.ids |= place

    def sources(self) -> None:
        send = self.judge.send
        body = {"kind": "duckdb", "options": {"paths": [str(self.judge.service.table)]}}
        doomed = {"name": "doomed"}
        send("putSource", doomed, body, status=201)
        send("deleteSource", doomed)
        orders = {"name": "orders"}
        send("putSource", orders, body, status=201)
        send("putSource", orders, body, status=200)
        query = send("profileSource", orders, status=202)["id"]
        self.until(query, status="succeeded")
        send("listQueryEvents", {"query_id": query})
        assert send("readSource", orders)["profile"]["status"] == "succeeded"
        send("listSources")
        entry = {"kind": "knowledge", "name": "cents", "content": {"description": "Prices are in cents."}}
        send("putCatalogEntry", {"id": "knowledge:cents"}, entry)
        send("writeCatalogEntries", body={"entries": [{"id": "knowledge:more", **entry}]})
        send("readCatalogEntry", {"id": "knowledge:cents"})
        assert send("searchCatalog", query={"query": "cents"})["items"]
        send("listCatalogEntries", query={"limit": 1})
        send("deleteCatalogEntry", {"id": "knowledge:more"})

    def operate(self) -> None:
        self.judge.send("checkHealth")
        self.judge.send("checkReadiness")
        numbers = self.judge.judge(self.judge.operations["readMetrics"].Case())
        assert "plangate_queries" in numbers.text

    def work(self) -> None:
        send = self.judge.send
        page = send("listWorkRecords", query={"kind": "agent", "status": "succeeded", "limit": 1})
        send("listWorkRecords", query={"kind": "agent", "status": "succeeded", "cursor": page["nextCursor"]})
        record = page["items"][0]
        send("listWorkRecords", query={"queryId": record["queryId"]})
        read = send("readWorkRecord", {"work_id": record["id"]}, query={"tree": True})
        assert read["below"]
        for group in ("query", "thread", "agent", "model", "artifact", "channel", "day"):
            send("readUsage", query={"groupBy": group})

    def runtimes(self) -> None:
        send = self.judge.send
        assert send("validateRuntime", body=SPEC)["valid"]
        assert not send("validateRuntime", body={**SPEC, "plans": []})["valid"]
        old = send(
            "registerRuntime", body={**SPEC, "tenant": {**SPEC["tenant"], "version": "old"}}, status=201
        )
        made = send("registerRuntime", body=SPEC, status=201)
        send("registerRuntime", body=SPEC, status=200)
        self.ids |= {"runtime_id": made["id"], "agent": "worker"}
        send("readRuntime", {"runtime_id": made["id"]})
        send("retireRuntime", {"runtime_id": old["id"]})
        page = send("listRuntimes", query={"limit": 1})
        send("listRuntimes", query={"limit": 1, "cursor": page["nextCursor"]})
        for agent in ("worker", "planner"):
            send("readAgentPrompt", {"runtime_id": made["id"], "agent": agent})
            send("listAgentTools", {"runtime_id": made["id"], "agent": agent})
        posted = {
            **SPEC["tools"][0],
            "name": "post",
            "transport": {"kind": "http", "url": "https://tools.example"},
        }
        signing = {**SPEC, "name": "fuzzed-http", "tools": [*SPEC["tools"], posted]}
        made = send("registerRuntime", body=signing, status=201)
        rotated = send("rotateSigningSecret", {"runtime_id": made["id"]})
        assert rotated["signingSecret"] != made["signingSecret"]

    def references(self) -> None:
        send = self.judge.send
        body = {"runtime": "fuzzed", "kind": "Numbers", "value": {"numbers": [1, 2, 3]}}
        made = send("createReference", body=body, status=201)
        send("createReference", body=body, status=200)
        self.ids |= {"kind": "Numbers", "id": made["id"]}
        handle = {"kind": "Numbers", "id": made["id"]}
        send("readReference", handle)
        send("readReferenceGlimpse", handle)
        send("listReferences", query={"kind": "Numbers"})
        fleeting = send("createReference", body={**body, "kind": "Fleeting"}, status=201)
        send("readReference", {"kind": "Fleeting", "id": fleeting["id"]}, status=410)
        doomed = send("createReference", body={**body, "value": {"numbers": []}}, status=201)
        send("deleteReference", {"kind": "Numbers", "id": doomed["id"]})

    def files(self) -> None:
        send, thread = self.judge.send, {"thread_id": self.ids["thread_id"]}
        self.ids["path"] = "notes/today.md"
        place = {**thread, "path": self.ids["path"]}
        send("writeFile", place, body=b"one", media_type=BYTES, status=201)
        assert send("writeFile", place, body=b"two", media_type=BYTES, status=200)["version"] == 2
        case = self.judge.operations["readFile"].Case(path_parameters=place, query={"version": 1})
        assert self.judge.judge(case).content == b"one"
        doomed = {**thread, "path": "doomed"}
        send("writeFile", doomed, body=b"x", media_type=BYTES, status=201)
        assert send("deleteFile", doomed)["digest"] is None
        page = send("listFiles", thread, query={"prefix": "notes/"})
        assert [row["path"] for row in page["items"]] == [place["path"]]
        asked = {"threadId": thread["thread_id"], "channel": "design", "path": "notes"}
        made = send("publishArtifact", body=asked, status=201)["id"]
        self.ids |= {"artifact_id": made, "channel": "design"}
        upload = {"channel": "handoff", "name": "kept"}
        there = {"threadId": thread["thread_id"], "parent": made, "tag": "x"}
        for status in (201, 200):
            send("uploadArtifact", upload, body=b"x", media_type=BYTES, query=there, status=status)
        send("readArtifact", {"artifact_id": made})
        assert len(send("readArtifactLineage", {"artifact_id": made})["descendants"]) == 1
        page = send("listArtifacts", query={"limit": 1})
        send("listArtifacts", query={"limit": 1, "cursor": page["nextCursor"]})
        rivals = [
            send("publishArtifact", body={**asked, "replaces": made}, status=201)["id"] for _ in range(2)
        ]
        chosen = {"over": rivals[1:], "reason": "The first is complete."}
        send("chooseArtifact", {"artifact_id": rivals[0]}, chosen, status=201)
        send("withdrawArtifact", {"artifact_id": rivals[0]}, {"reason": "It was wrong."}, status=201)
        case = self.judge.operations["readArtifactContent"].Case(path_parameters={"artifact_id": made})
        assert self.judge.judge(case).content.endswith(b"  today.md\n")

    def submit(self, *calls: tuple[str, dict[str, Any]], **parts: Any) -> str:
        script = {"script": [{"tool": tool, "args": args} for tool, args in calls]}
        asked = {"runtime": "fuzzed", "agent": "worker", "prompt": json.dumps(script), **parts}
        query: str = self.judge.send("submitQuery", body=asked, status=202)["id"]
        return query

    def until(self, query: str, **wanted: str) -> dict[str, Any]:
        """The query once it is as wanted."""

        def look() -> Any:
            found = self.judge.send("readQuery", {"query_id": query})
            return found if all(found[name] == value for name, value in wanted.items()) else None

        found: dict[str, Any] = eventually(look)
        return found

    def queries(self) -> None:
        send = self.judge.send
        thread = send("createThread", body={"threadKey": "mine"}, status=201)["id"]
        send("createThread", body={"threadKey": "mine"}, status=200)
        glimpse = ("glimpseRef", {"kind": "Numbers", "id": self.ids["id"]})
        query = self.submit(glimpse, threadId=thread, metadata={"for": "fuzzing"})
        send("readQuery", {"query_id": query}, query={"waitMs": 20_000})
        self.until(query, status="succeeded")
        self.ids |= {"query_id": query, "thread_id": thread}
        send("listQueryEvents", {"query_id": query})
        send("listQueryWork", {"query_id": query})
        send("readThread", {"thread_id": thread})
        assert send("listThreadMessages", {"thread_id": thread})["items"] is not None
        assert send("readThreadState", {"thread_id": thread})["document"] == {}
        assert send("listStateWrites", {"thread_id": thread})["items"] == []
        fork = send("forkThread", {"thread_id": thread}, body={}, status=201)["id"]
        assert send("listStateWrites", {"thread_id": fork})["items"][0]["forkedFrom"] == f"{thread}@0"
        send("listThreads")
        send("listQueries", query={"status": "succeeded"})
        failed = self.submit(prompt="this is no script")
        self.until(failed, status="failed")
        send("listQueryEvents", {"query_id": failed})
        limited = self.submit(glimpse, glimpse, limits={"maxTurns": 1})
        self.until(limited, reason="limit_reached")
        send("resumeQuery", {"query_id": limited}, {"limits": {"maxTurns": 10}})
        self.until(limited, status="succeeded")
        send("listQueryWork", {"query_id": limited})
        repeated = {"Idempotency-Key": "one"}
        asked = {"runtime": "fuzzed", "agent": "worker", "prompt": '{"script": []}'}
        once = send("submitQuery", body=asked, headers=repeated, status=202)
        assert send("submitQuery", body=asked, headers=repeated, status=202) == once
        send("submitQuery", body={**asked, "agent": "planner"}, headers=repeated, status=409)

    def claim(self, name: str) -> dict[str, Any]:
        def look() -> Any:
            return self.judge.send("claimToolCall", body={"tools": [{"name": name}]})["calls"]

        call: dict[str, Any] = eventually(look)[0]
        return call

    def tools(self) -> None:
        send = self.judge.send
        query = self.submit(("look", {"at": "this"}))
        call = self.claim("look")
        work, token = {"work_id": call["workId"]}, {"claimToken": call["claimToken"]}
        send("releaseToolCall", work, token)
        call = self.claim("look")
        token = {"claimToken": call["claimToken"]}
        send("heartbeatToolCall", work, {**token, "leaseMs": 60_000})
        send(
            "reportToolProgress",
            work,
            {**token, "label": "half", "phaseIndex": 1, "totalPhases": 2, "milestone": "m"},
        )
        send("listQueryEvents", {"query_id": query})
        thread = {"thread_id": send("readQuery", {"query_id": query})["threadId"]}
        written = {"workId": call["workId"], "path": "†state.seen", "method": "push", "value": {"n": [None]}}
        send("writeThreadState", thread, written)
        send("writeThreadState", thread, {**written, "path": "†state"}, status=422)
        place = {"runtime": "fuzzed", "resource": TENANT}
        send("writeMemoryOfCall", place, {**written, "path": "†memory.seen"}, status=201)
        assert send("postToolResult", work, {**token, "output": {"seen": [1, None, "x"]}})["adopted"]
        self.until(query, status="succeeded")
        send("listQueryEvents", {"query_id": query})
        send("listQueryWork", {"query_id": query})
        send("writeThreadState", thread, written, status=409)
        send("listToolCalls", query={"status": "done"})
        self.ids["work_id"] = call["workId"]
        self.submit(("look", {}))  # stays open

    def mcp_servers(self) -> None:
        with fake_mcp_in_a_thread() as url:
            (tool,) = self.judge.send("listMcpTools", body={"url": url})["tools"]
            spec = {**SPEC, "name": "fuzzed-mcp", "tools": [*SPEC["tools"], tool]}
            assert self.judge.send("validateRuntime", body=spec)["valid"]
        self.judge.send("listMcpTools", body={"url": url}, status=422)

    def stored(self, **parts: Any) -> str:
        asked = {"runtime": "fuzzed", "specName": "Payments", "body": BODY, **parts}
        plan: str = self.judge.send("storePlan", body=asked, status=201)["id"]
        return plan

    def executed(self, plan: str) -> tuple[str, str]:
        """A query that waits at the gate of a plan, and the approval it waits for."""
        accepted = self.judge.send("executePlan", {"plan_id": plan}, {"inputs": {"by": "hand"}}, status=202)
        waiting = self.until(accepted["id"], status="waiting", reason="approval")
        return accepted["id"], waiting["openApprovals"][0]

    def plans(self) -> None:
        send = self.judge.send
        references = [{"kind": "Numbers", "id": self.ids["id"]}]
        body = {"actions": [{"kind": "pay", "amount": 1, "references": references}]}
        plan = self.stored(body=body, planId="mine", threadKey="plans")
        self.stored(body=body, planId="mine", threadKey="plans")
        query, approval = self.executed(plan)
        self.ids["plan_id"] = plan
        send("readApprovalSubject", {"approval_id": approval})
        self.approved(approval)
        send("decideApproval", {"approval_id": approval}, {"decision": "reject"}, status=409)
        call = self.claim("actions.pay")
        assert call["resolvedRefs"]["Numbers"]
        done = {"claimToken": call["claimToken"], "output": {"entitiesAffected": 1, "summary": "Paid."}}
        send("postToolResult", {"work_id": call["workId"]}, done)
        self.until(query, status="succeeded")
        for name in (
            "readPlan",
            "listPlanRevisions",
            "listPlanTransitions",
            "listPlanActions",
            "readPlanGraph",
        ):
            send(name, {"plan_id": plan})
        drawn = self.judge.judge(
            self.judge.operations["drawPlanGraph"].Case(path_parameters={"plan_id": plan})
        )
        assert drawn.text.startswith("flowchart")
        send("listQueryEvents", {"query_id": query})
        send("listQueryWork", {"query_id": query})
        copied, approval = self.executed(plan)
        self.revised(approval)
        self.until(copied, status="succeeded")
        send("listPlans", query={"specName": "Payments"})

    def approved(self, approval: str, **parts: Any) -> None:
        digest = self.judge.send("readApproval", {"approval_id": approval})["digest"]
        self.judge.send(
            "decideApproval", {"approval_id": approval}, {"decision": "approve", "digest": digest, **parts}
        )

    def revised(self, approval: str) -> None:
        said = {"decision": "revise", "feedback": "less", "partial": {"amount": 1}}
        self.judge.send("decideApproval", {"approval_id": approval}, said)

    def unknown_outcome(self) -> None:
        send = self.judge.send
        plan = self.stored()
        query, approval = self.executed(plan)
        self.approved(approval)
        self.claim("actions.pay")
        send("cancelQuery", {"query_id": query})
        settled = send(
            "settleAction",
            {"plan_id": plan, "index": 0},
            {"outcome": "succeeded", "details": {"seen": "yes"}},
        )
        assert settled["status"] == "succeeded"
        for name in ("readPlan", "listPlanTransitions", "listPlanActions", "readPlanGraph"):
            send(name, {"plan_id": plan})

    def approvals(self) -> None:
        send = self.judge.send
        query = self.submit(("spend", {"amount": 1}))
        waiting = self.until(query, reason="approval")
        approval, thread = waiting["openApprovals"][0], {"thread_id": waiting["threadId"]}
        send("deleteThread", thread, status=409)
        send("readApproval", {"approval_id": approval})
        send("readApprovalSubject", {"approval_id": approval})
        send("listApprovals", query={"status": "pending"})
        send(
            "decideApprovals", body={"decisions": [{"id": approval, "decision": "reject", "feedback": "no"}]}
        )
        self.until(query, status="succeeded")
        send("listQueryEvents", {"query_id": query})
        assert send("deleteThread", thread)["deleted"]
        send("deleteThread", thread, status=404)
        assert send("readApproval", {"approval_id": approval})["status"] == "rejected"
        send("readApprovalSubject", {"approval_id": approval}, status=410)
        send("listApprovals", query={"threadId": thread["thread_id"]})
        remembered = self.submit(("spend", {"amount": 2}))
        approval = self.until(remembered, reason="approval")["openApprovals"][0]
        send("decideApproval", {"approval_id": approval}, {"decision": "approve"}, status=422)
        self.approved(approval, args={"amount": 1}, scope="thread")
        send("decideApproval", {"approval_id": approval}, {"decision": "reject", "args": {}}, status=422)
        (grant,) = send("listGrants", query={"active": "true"})["items"]
        send("revokeGrant", {"grant_id": grant["id"]})
        send("cancelQuery", {"query_id": remembered})
        self.ids["grant_id"] = grant["id"]
        waiting = self.submit(("spend", {"amount": 2}))
        self.ids["approval_id"] = self.until(waiting, reason="approval")["openApprovals"][0]
        self.stored(planId="a draft", threadKey="drafts")
        send("listApprovals")

    def streams(self) -> None:
        judge, query = self.judge, self.ids["query_id"]
        events = judge.stream("streamQuery", "GET", f"/queries/{query}/stream", 1000)
        assert events[-1]["type"] == "finish"
        judge.stream("streamToolCalls", "GET", "/tool-calls/stream", 1)
        asked = {"runtime": "fuzzed", "agent": "worker", "prompt": '{"script": []}'}
        cursor = judge.send("listEvents")["nextCursor"]
        assert (
            judge.stream("streamNewQuery", "POST", "/queries/stream", 1000, json=asked)[-1]["type"]
            == "finish"
        )
        judge.stream("streamEvents", "GET", "/events/stream", 3, params={"after": cursor})
        judge.send("listEvents", query={"after": cursor, "types": "text,finish"})

    def keys_and_secrets(self) -> None:
        send = self.judge.send
        asked = {"principal": "ann", "scopes": ["read"], "expiresAt": "2099-01-02T03:04:05Z"}
        key = send("createKey", body=asked, status=201)["id"]
        send("createKey", body={"principal": "bo", "scopes": ["tools:serve"], "tools": ["look"]}, status=201)
        send("listKeys", query={"limit": 1})
        send("revokeKey", {"key_id": key})
        send("listKeys")
        send("putSecret", {"name": "doomed"}, {"value": "x"})
        send("putSecret", {"name": "kept"}, {"value": "x"})
        send("listSecrets")
        send("deleteSecret", {"name": "doomed"})
        self.ids |= {"key_id": key, "name": "kept", "index": "0"}


@pytest.fixture(scope="module")
def ids(judge: Judge) -> dict[str, str]:
    return World(judge).build()


def test_every_operation_succeeds_as_documented(judge: Judge, ids: dict[str, str]) -> None:
    print(*(f"{name} {status}: {count}" for (name, status), count in sorted(judge.answers.items())), sep="\n")
    assert judge.unanswered() == ELSEWHERE
    assert {"query_id", "plan_id", "approval_id", "work_id"} <= ids.keys()


# What has broken services before.

RAW = [
    "%00",
    "a%00b",
    "%ED%A0%80",  # a lone surrogate
    "%FF%FE",
    "%0D%0A",
    "%2F..%2F..",
    "..%2F",
    "%25s%25n",
    "x" * 3000,
    "99999999999999999999999999",
    "-1",
    "1e400",
    "%F0%9F%A6%94",
    "'%3B--",
    "null",
    "qry_00000000000000000000000000",
    "%3F%23%5B",
]
VALUES = [
    r'"\u0000"',
    r'"\ud800"',
    '"' + "x" * 5000 + '"',
    '"\\u202e\\ufeff"',
    "1e400",
    "NaN",
    "-0.0",
    "9223372036854775807",
    "9223372036854775808",
    "-1",
    "[]",
    "{}",
    "null",
    "true",
    '[[["x"]]]',
    "[" * 100 + "]" * 100,
    '{"a": 1, "a": 2}',
    '"0001-01-01T00:00:00+14:00"',
    '"9999-12-31T23:59:59-14:00"',
    '"2026-01-01T00:00:00"',
    '{"\\u0000": 1}',
]
BODIES = [
    b"",
    b"{",
    b"null",
    b"[]",
    b'"x"',
    b"\xff",
    b"\xef\xbb\xbf{}",
    b'{"a": 1, "a": 2}',
    b"{}" + b" " * 2_000_000,
]
HEADERS = [
    ("Plangate-Tenant", "UPPER"),
    ("Plangate-Tenant", "*"),
    ("Plangate-Tenant", "\xff"),
    ("Plangate-Principal", "x" * 300),
    ("Plangate-Principal", "\xe9"),
    ("Idempotency-Key", ""),
    ("Idempotency-Key", "x" * 300),
    ("Idempotency-Key", "\xff\x80"),
    ("Last-Event-ID", "x" * 5000),
    ("Last-Event-ID", "\xff"),
    ("Authorization", "Bearer"),
    ("Authorization", "Bearer \xff"),
    ("Authorization", "Basic eA=="),
    ("Content-Type", "text/plain"),
    ("Content-Type", "\xff/;;=,"),
    ("Host", "["),
    ("Host", "a?b#c@d"),
    ("Accept", "\xff"),
]


class Raw:
    """Requests as they are, without a library that makes them right first."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._at = urlsplit(judge.service.url)
        self._open()

    def _open(self) -> None:
        self._http = http.client.HTTPConnection(self._at.hostname or "", self._at.port, timeout=10)

    def close(self) -> None:
        self._http.close()

    def send(
        self,
        name: str,
        method: str,
        path: str,
        body: bytes | None = None,
        extra: tuple[str, str] | None = None,
    ) -> int:
        headers = {"Host": self._at.netloc, "Accept": JSON, **self._judge.service.headers}
        if body is not None:
            headers |= {"Content-Type": JSON, "Content-Length": str(len(body))}
        headers |= dict([extra] if extra else [])
        try:
            self._http.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for header, value in headers.items():
                self._http.putheader(header, value.encode("latin-1"))
            self._http.endheaders(body)
            answer = self._http.getresponse()
            data = answer.read()
        except (http.client.HTTPException, OSError):  # the server may hang up on a body that is too large
            self.close()
            self._open()
            assert body is not None
            assert len(body) > 1_000_000
            return 413
        what = f"{method} {path[:200]} {(body or b'')[:200]!r} {extra}: {answer.status} {data[:500]!r}"
        if answer.status >= 400:
            assert answer.status < 500, what
            assert answer.headers["content-type"] == "application/problem+json", what
            assert json.loads(data)["status"] == answer.status, what
        listed = self._judge.operations[name].definition.raw["responses"]
        astray = answer.status in (404, 405) and "%2F" in path  # the path of another route, or of none
        assert str(answer.status) in listed or astray, what
        return answer.status


def test_hostile_values_are_refused_with_a_problem(judge: Judge, ids: dict[str, str]) -> None:
    statuses: Counter[int] = Counter()
    with contextlib.closing(Raw(judge)) as raw:
        for path, method, operation in operations(judge.document):
            name = operation["operationId"]
            if name in ENDLESS or scope_of(operation) is None:
                continue
            for target, body, extra in _hostile(judge.document, path, operation, ids):
                statuses[raw.send(name, method.upper(), target, body, extra)] += 1
    print(*sorted(statuses.items()))
    assert statuses[404] > 100
    assert statuses[422] > 100
    assert statuses[400] > 100
    assert judge.send("checkReadiness")["status"] == "ready"


def _hostile(
    document: dict[str, Any], path: str, operation: dict[str, Any], ids: dict[str, str]
) -> Iterator[tuple[str, bytes | None, tuple[str, str] | None]]:
    """(target, body, header): one hostile value each, everything else in order."""
    names = re.findall(r"{(\w+)}", path)
    real = _filled(path, {name: quote(ids[name]) for name in names})
    fields, valid = _body(document, operation)
    whole = None if fields is None else _encoded(valid)
    for name in names:
        for value in RAW:
            yield _filled(path, {n: value if n == name else quote(ids[n]) for n in names}), whole, None
    for parameter in operation.get("parameters", ()):
        if parameter.get("in") == "query":
            for value in RAW:
                yield f"{real}?{parameter['name']}={value}", whole, None
    if operation["operationId"] in DESTRUCTIVE:
        return
    for header in HEADERS:
        yield real, whole, header
    if fields is not None:
        for body in BODIES:
            yield real, body, None
        for field in fields:
            for value in VALUES:
                yield real, _encoded({**valid, field: value}), None


DESTRUCTIVE = {
    "deleteReference",
    "deleteThread",
    "retireRuntime",
    "revokeKey",
    "deleteSecret",
    "cancelQuery",
}


def _filled(path: str, values: dict[str, str]) -> str:
    return re.sub(r"{(\w+)}", lambda found: values[found[1]], path)


def _body(document: dict[str, Any], operation: dict[str, Any]) -> tuple[list[str] | None, dict[str, str]]:
    """The fields of an operation's body, and the JSON of valid values of those that it needs."""
    if "requestBody" not in operation:
        return None, {}
    if JSON not in operation["requestBody"]["content"]:
        return None, {}  # a body of any bytes
    name = operation["requestBody"]["content"][JSON]["schema"]["$ref"].rpartition("/")[2]
    schema = document["components"]["schemas"][name]
    valid = {field: json.dumps(NEEDED[field]) for field in schema.get("required", ())}
    return list(schema["properties"]), valid


NEEDED: dict[str, Any] = {
    "url": "http://127.0.0.1:9/mcp",
    "prompt": '{"script": []}',
    "limits": {"maxTurns": 1},
    "decision": "approve",
    "decisions": [{"id": "apr_00000000000000000000000000", "decision": "approve"}],
    "specName": "Payments",
    "body": BODY,
    "outcome": "failed",
    "kind": "Numbers",
    "value": {"numbers": [1]},
    "claimToken": "x",
    "label": "x",
    "tools": [{"name": "none"}],
    "principal": "ann",
    "scopes": ["read"],
    "tenant": SPEC["tenant"],
    "threadId": "thr_00000000000000000000000000",
    "workId": "wrk_00000000000000000000000000",
    "channel": "design",
    "path": "a",
    "agents": SPEC["agents"],
    "over": ["art_00000000000000000000000000"],
    "reason": "x",
    "entries": [{"id": "knowledge:x", "kind": "knowledge", "name": "x"}],
}


def _encoded(fields: dict[str, str]) -> bytes:
    """An object of values that are JSON already, or are meant not to be."""
    return ("{" + ", ".join(f'"{name}": {value}' for name, value in fields.items()) + "}").encode()


# What a fuzzer thinks of.


def test_whatever_is_sent_is_answered_as_documented(judge: Judge, ids: dict[str, str]) -> None:
    """Valid and invalid data of the fuzzer, half of it about things that exist."""
    before = judge.answers.copy()
    end = time.monotonic() + FUZZ_S
    # What takes things away comes last.
    order = sorted(judge.operations.values(), key=lambda found: found.method == "delete")
    for turn in range(2):
        for number, operation in enumerate(order):
            if operation.definition.raw["operationId"] in ENDLESS | STREAMS:
                continue
            part = end - (1 - turn) * FUZZ_S / 2
            share = (part - time.monotonic()) / (len(order) - number)
            _fuzz(judge, operation, ids if turn == 0 else {}, share)
    fuzzed = judge.answers - before
    print(fuzzed.total(), "requests:", *sorted(fuzzed.items()))
    assert fuzzed.total() > 150
    refused = sum(count for (_, status), count in fuzzed.items() if status == 401)
    assert refused < fuzzed.total() / 4


def _fuzz(judge: Judge, operation: Any, known: dict[str, str], seconds: float) -> None:
    named = {p["name"] for p in operation.definition.raw.get("parameters", ()) if p.get("in") == "path"}
    path = {name: known[name] for name in named & known.keys()}
    fixed = {"Plangate-Tenant": TENANT}
    end = time.monotonic() + max(seconds, 0.05)
    for mode in GenerationMode:
        if time.monotonic() > end:
            break
        cases = operation.as_strategy(generation_mode=mode, path_parameters=path or None, headers=fixed)

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=cases)
        def send(case: Any) -> None:
            if time.monotonic() < end:
                judge.judge(case)

        with contextlib.suppress(Unsatisfiable):  # nothing to spoil: no such data can be made
            send()
