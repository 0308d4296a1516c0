"""A running service that a test drives through every operation of its API, and holds against the API document."""

from __future__ import annotations

import contextlib
import copy
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs
import requests
import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from app.api.openapi import operations
from tests.support.mcp import fake_mcp_in_a_thread
from tests.support.service import Service, folder, serving

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
TENANT = "acme"
JSON = "application/json"
BYTES = "application/octet-stream"
SSE = "text/event-stream"
MESSAGES_IN_AN_EXAMPLE = 3
"""Of a stream; the first tells when to reconnect."""

ORDERS = {
    "type": "object",
    "properties": {"orders": {"type": "array", "items": {"type": "integer"}}},
    "required": ["orders"],
}
ORDER = {"type": "object", "properties": {"order": {"type": "string"}}, "required": ["order"]}
VOUCHER = {"type": "object", "properties": {"cents": {"type": "integer"}}, "required": ["cents"]}
REFUND = {
    "type": "object",
    "properties": {"kind": {"const": "refund"}, "cents": {"type": "integer"}},
    "required": ["kind", "cents"],
    "additionalProperties": False,
}
SPEC = {
    "name": "desk",
    "tenant": {"resourceId": TENANT},
    "interpreter": "scripted",
    "agents": [
        {
            "name": "clerk",
            "role": "specialist",
            "model": {"id": "none"},
            "tools": ["find_order", "send_voucher"],
            "toolkits": ["references"],
        },
        {"name": "planner", "role": "planner", "model": {"id": "none"}, "plan": "Refunds"},
    ],
    "references": [
        {"name": "Orders", "schema": ORDERS, "glimpse": {"count": "length(orders)"}},
        {"name": "Quotes", "schema": ORDERS, "ttlMs": 0},
    ],
    "plans": [
        {
            "name": "Refunds",
            "schema": {
                "type": "object",
                "properties": {"actions": {"type": "array", "items": REFUND}},
                "required": ["actions"],
            },
        }
    ],
    "tools": [
        {"name": "find_order", "description": "Finds an order.", "inputSchema": ORDER},
        {
            "name": "send_voucher",
            "description": "Sends the customer a voucher.",
            "inputSchema": VOUCHER,
            "approval": {"kind": "always", "rememberable": True},
        },
    ],
    "actionDispatchers": {"refund": "client"},
}
BODY = {"actions": [{"kind": "refund", "cents": 7}]}


@contextlib.contextmanager
def running_judge() -> Iterator[Judge]:
    """Start a service, and give what sends requests to it. An internal error in its log fails the test."""
    with folder() as at:
        table = at / "orders.csv"
        table.write_text("id,cents\n1,250\n2,975\n")
        settings = {"PLANGATE_ALLOW_HOSTS": "127.0.0.1", "PLANGATE_SOURCE_PATHS": str(at)}
        with serving(at, settings) as service:
            eventually(lambda: httpx.get(f"{service.url}/readyz").status_code == 200)
            judge = Judge(service, table)
            yield judge
            judge.session.close()
        log = (at / "log").read_text()
    assert "internal_error" not in log, log[-20_000:]


def eventually(read: Callable[[], Any], seconds: float = 60) -> Any:
    """Return the value of `read` once it is true."""
    end = time.monotonic() + seconds
    while not (value := _quietly(read)):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)
    return value


def _quietly(read: Callable[[], Any]) -> Any:
    try:
        return read()
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

    def __init__(self, service: Service, table: Path) -> None:
        self.service = service
        self.table = table
        """A file that sources may read."""
        self.headers = {"Authorization": f"Bearer {service.key}", "Plangate-Tenant": TENANT}
        self.document = httpx.get(f"{service.url}/openapi.json", timeout=60).json()
        strict = strictly(self.document)
        self.schema = schemathesis.openapi.from_dict(strict)
        self.answers: Counter[tuple[str, int]] = Counter()
        self.examples: dict[str, dict[str, Any]] = {}
        """What `example` sent and received, by operation."""
        self.session = requests.Session()
        self.operations = {
            found.ok().definition.raw["operationId"]: found.ok() for found in self.schema.get_all_operations()
        }
        self._event = jsonschema_rs.validator_for(
            {"$ref": "#/components/schemas/Event", "components": strict["components"]}
        )

    def send(self, name: str, path: dict[str, Any] | None = None, body: Any = None, **parts: Any) -> Any:
        """Return the JSON of the response to a request, or its text. The request must succeed, or have the `status`."""
        return _content(self.respond(name, path, body, **parts))

    def respond(self, name: str, path: dict[str, Any] | None = None, body: Any = None, **parts: Any) -> Any:
        """Return the response to a request, which must succeed, or have the `status`."""
        case = self.operations[name].Case(
            path_parameters=path or {},
            query=parts.get("query", {}),
            headers=parts.get("headers", {}),
            **({} if body is None else {"body": body, "media_type": parts.get("media_type", JSON)}),
        )
        response = self.judge(case)
        assert response.status_code == parts.get("status", response.status_code), response.text
        assert response.status_code < 300 or "status" in parts, f"{name}: {response.text}"
        return response

    def example(
        self,
        name: str,
        path: dict[str, Any] | None = None,
        body: Any = None,
        *,
        until: Callable[[Any], Any] = lambda content: True,
        **parts: Any,
    ) -> Any:
        """Send a request that the API document shows as the example of its operation, and again until the content of the
        response is as wanted. Return the content: JSON, or a text."""

        def attempt() -> Any:
            response = self.respond(name, path, body, **parts)
            content = _content(response)
            return (response.status_code, content) if until(content) else None

        status, content = eventually(attempt)
        self.record(name, status, content, path=path, query=parts.get("query"), body=body)
        return content

    def record(self, name: str, status: int, response: Any, **request: Any) -> None:
        assert name not in self.examples, f"{name} has two examples"
        sent = {part: value for part, value in request.items() if value is not None}
        if isinstance(sent.get("body"), bytes):
            sent["body"] = sent["body"].decode()
        self.examples[name] = copy.deepcopy({**sent, "status": status, "response": response})

    def judge(self, case: Any) -> Any:
        answer = self._call(case)
        if answer.status_code == 503:  # documented, and a slow machine may answer so, but not twice
            answer = self._call(case)
        case.validate_response(answer, checks=CHECKS)
        self.count(case.operation.definition.raw["operationId"], answer.status_code)
        return answer

    def _call(self, case: Any) -> Any:
        own = {} if "Cookie" in case.headers else self.headers
        headers = {**case.headers, "Accept": JSON, **own}
        return case.call(base_url=self.service.url, session=self.session, headers=headers, timeout=30)

    def count(self, name: str, status: int) -> None:
        self.answers[name, status] += 1

    def stream(
        self, name: str, messages: int, path: dict[str, Any] | None = None, **parts: Any
    ) -> list[dict[str, Any]]:
        """Return the first messages of a stream, whose first lines are the example of the operation. Events must conform to
        the list of events."""
        operation = self.operations[name]
        url = self.service.url + operation.path.format(**path or {})
        headers = self.headers
        found: list[dict[str, Any]] = []
        lines: list[str] = []
        with httpx.stream(operation.method, url, headers=headers, timeout=60, **parts) as answer:
            declared = self.operations[name].definition.raw["responses"][str(answer.status_code)]
            assert answer.headers["content-type"].partition(";")[0] == SSE
            assert SSE in declared["content"]
            assert all(header.lower() in answer.headers for header in declared.get("headers", {}))
            event = None
            for line in answer.iter_lines():
                lines.append(line)
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
        messages_in_text = "\n".join(lines).split("\n\n")
        example = "\n\n".join(messages_in_text[:MESSAGES_IN_AN_EXAMPLE])
        request = {"path": path, "query": parts.get("params"), "body": parts.get("json")}
        self.record(name, answer.status_code, example, **request)
        return found

    def unanswered(self) -> list[str]:
        """Operations that nothing succeeded of."""
        good = {name for name, status in self.answers if status < 300}
        return sorted(set(self.operations) - good)


def _content(response: Any) -> Any:
    media_type = response.headers["content-type"][0].partition(";")[0]
    return response.json() if media_type.endswith("json") else response.text


class World:
    """The states that operations need, each reached by the operations before it."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.ids: dict[str, str] = {}

    def build(self) -> dict[str, str]:
        """Drive every operation to each of its successes. Return ids that path parameters can name afterwards."""
        self.operate()
        self.runtimes()
        self.references()
        self.queries()
        self.work()
        self.files()
        self.tools()
        self.client_workspace()
        self.mcp_servers()
        self.plans()
        self.unknown_outcome()
        self.stored_values()
        self.approvals()
        self.streams()
        self.keys_and_secrets()
        self.sessions()
        self.memory()
        self.sources()
        return self.ids

    def sessions(self) -> None:
        send, example, judge = self.judge.send, self.judge.example, self.judge
        assert example("whoami")["tenant"] == TENANT
        ticket = example("createTicket")["ticket"]
        response = judge.respond(
            "startSession", body={"ticket": ticket}, headers={"Cookie": "a=b"}, status=200
        )
        judge.record("startSession", 200, response.json(), body={"ticket": ticket})
        cookies = response.headers["set-cookie"][0].partition(";")[0]
        judge.session.cookies.clear()
        example("endSession", headers={"Cookie": cookies, "Plangate-Request": "1"})
        judge.session.cookies.clear()
        send("endSession", status=409)

    def memory(self) -> None:
        send, example, place = self.judge.send, self.judge.example, {"runtime": "desk", "resource": TENANT}
        example("writeMemory", place, {"path": "†memory.greeting", "value": {"text": "Hello"}}, status=201)
        assert example("readMemory", place)["document"]
        assert example("listMemoryWrites", place, query={"limit": 1})["items"]
        example("deleteMemory", place)
        send("writeMemory", place, {"path": "†memory.again", "value": 1}, status=201)
        self.ids |= place

    def sources(self) -> None:
        send, example = self.judge.send, self.judge.example
        body = {"kind": "duckdb", "options": {"paths": [str(self.judge.table)]}}
        archive = {"name": "archive"}
        send("putSource", archive, body, status=201)
        example("deleteSource", archive)
        orders = {"name": "orders"}
        example("putSource", orders, body, status=201)
        send("putSource", orders, body, status=200)
        query = example("profileSource", orders, status=202)["id"]
        self.until(query, status="succeeded")
        send("listQueryEvents", {"query_id": query})
        assert example("readSource", orders)["profile"]["status"] == "succeeded"
        example("listSources")
        entry = {"kind": "knowledge", "name": "cents", "content": {"description": "Prices are in cents."}}
        example("putCatalogEntry", {"id": "knowledge:cents"}, entry)
        example("writeCatalogEntries", body={"entries": [{"id": "knowledge:more", **entry}]})
        example("readCatalogEntry", {"id": "knowledge:cents"})
        assert example("searchCatalog", query={"query": "cents", "limit": 1})["items"]
        example("listCatalogEntries", query={"kind": "knowledge", "limit": 1})
        example("deleteCatalogEntry", {"id": "knowledge:more"})
        self.ids |= {"sources.name": "orders", "catalog.id": "knowledge:cents"}

    def operate(self) -> None:
        example = self.judge.example
        example("checkHealth")
        example("checkReadiness")
        example("listTenants", query={"limit": 1})
        example("readTenant")
        example("listProcesses")
        assert "plangate_queries" in example("readMetrics")

    def work(self) -> None:
        send, example = self.judge.send, self.judge.example
        page = example("listWorkRecords", query={"kind": "agent", "status": "succeeded", "limit": 1})
        send("listWorkRecords", query={"kind": "agent", "status": "succeeded", "cursor": page["nextCursor"]})
        record = page["items"][0]
        send("listWorkRecords", query={"queryId": record["queryId"]})
        read = send("readWorkRecord", {"work_id": record["id"]}, query={"tree": True})
        assert read["below"]
        example("readWorkRecord", {"work_id": record["id"]})
        for group in ("query", "thread", "model", "artifact", "channel", "day"):
            send("readUsage", query={"groupBy": group})
        example("readUsage", query={"groupBy": "agent"})

    def runtimes(self) -> None:
        send, example = self.judge.send, self.judge.example
        assert send("validateRuntime", body=SPEC)["valid"]
        (_, planner) = SPEC["agents"]
        incomplete = {"name": "desk", "tenant": SPEC["tenant"], "agents": [planner]}
        assert not example("validateRuntime", body=incomplete)["valid"]
        old = send(
            "registerRuntime", body={**SPEC, "tenant": {**SPEC["tenant"], "version": "old"}}, status=201
        )
        runtime = example("registerRuntime", body=SPEC, status=201)
        send("registerRuntime", body=SPEC, status=200)
        self.ids |= {"runtime_id": runtime["id"], "agent": "clerk"}
        example("readRuntime", {"runtime_id": runtime["id"]})
        example("retireRuntime", {"runtime_id": old["id"]})
        page = example("listRuntimes", query={"limit": 1})
        send("listRuntimes", query={"limit": 1, "cursor": page["nextCursor"]})
        clerk, planner = ({"runtime_id": runtime["id"], "agent": agent} for agent in ("clerk", "planner"))
        send("readAgentPrompt", clerk)
        example("readAgentPrompt", planner)
        example("listAgentTools", clerk)
        send("listAgentTools", planner)
        posted = {
            **SPEC["tools"][0],
            "name": "post",
            "transport": {"kind": "http", "url": "https://tools.example"},
        }
        signing = {**SPEC, "name": "desk-http", "tools": [*SPEC["tools"], posted]}
        runtime = send("registerRuntime", body=signing, status=201)
        rotated = example("rotateSigningSecret", {"runtime_id": runtime["id"]})
        assert rotated["signingSecret"] != runtime["signingSecret"]

    def references(self) -> None:
        send, example = self.judge.send, self.judge.example
        body = {"runtime": "desk", "kind": "Orders", "value": {"orders": [17, 18, 19]}}
        reference = example("createReference", body=body, status=201)
        send("createReference", body=body, status=200)
        self.ids |= {"kind": "Orders", "id": reference["id"]}
        handle = {"kind": "Orders", "id": reference["id"]}
        example("readReference", handle)
        example("readReferenceGlimpse", handle)
        example("readReferencePart", handle, query={"path": "orders[0:2]"})
        example("listReferences", query={"kind": "Orders"})
        expired = send("createReference", body={**body, "kind": "Quotes"}, status=201)
        send("readReference", {"kind": "Quotes", "id": expired["id"]}, status=410)
        empty = send("createReference", body={**body, "value": {"orders": []}}, status=201)
        example("deleteReference", {"kind": "Orders", "id": empty["id"]})

    def files(self) -> None:
        send, example = self.judge.send, self.judge.example
        thread = {"thread_id": self.ids["thread_id"]}
        self.ids["path"] = "notes/today.md"
        place = {**thread, "path": self.ids["path"]}
        example("writeFile", place, body=b"one", media_type=BYTES, status=201)
        assert send("writeFile", place, body=b"two", media_type=BYTES, status=200)["version"] == 2
        assert example("readFile", place, query={"version": 1}) == "one"
        draft = {**thread, "path": "draft.md"}
        send("writeFile", draft, body=b"x", media_type=BYTES, status=201)
        assert example("deleteFile", draft)["digest"] is None
        page = example("listFiles", thread, query={"prefix": "notes/"})
        assert [row["path"] for row in page["items"]] == [place["path"]]
        design = {"threadId": thread["thread_id"], "channel": "design", "path": "notes"}
        artifact = example("publishArtifact", body=design, status=201)["id"]
        self.ids |= {"artifact_id": artifact, "channel": "design"}
        upload = {"channel": "handoff", "name": "summary.md"}
        query = {"threadId": thread["thread_id"], "parent": [artifact], "tag": ["draft"]}
        example("uploadArtifact", upload, body=b"x", media_type=BYTES, query=query, status=201)
        send("uploadArtifact", upload, body=b"x", media_type=BYTES, query=query, status=200)
        example("readArtifact", {"artifact_id": artifact})
        assert len(example("readArtifactLineage", {"artifact_id": artifact})["descendants"]) == 1
        page = example("listArtifacts", query={"limit": 1})
        send("listArtifacts", query={"limit": 1, "cursor": page["nextCursor"]})
        rivals = [
            send("publishArtifact", body={**design, "replaces": artifact}, status=201)["id"] for _ in range(2)
        ]
        chosen = {"over": rivals[1:], "reason": "The first is complete."}
        example("chooseArtifact", {"artifact_id": rivals[0]}, chosen, status=201)
        example("withdrawArtifact", {"artifact_id": rivals[0]}, {"reason": "It was wrong."}, status=201)
        assert example("readArtifactContent", {"artifact_id": artifact}).endswith("  today.md\n")

    def submit(self, *calls: tuple[str, dict[str, Any]], **parts: Any) -> str:
        script = {"script": [{"tool": tool, "args": args} for tool, args in calls]}
        body = {"runtime": "desk", "agent": "clerk", "prompt": json.dumps(script), **parts}
        query: str = self.judge.send("submitQuery", body=body, status=202)["id"]
        return query

    def until(self, query: str, **wanted: str) -> dict[str, Any]:
        """Return the query once it is as wanted."""

        def read() -> Any:
            view = self.judge.send("readQuery", {"query_id": query})
            return view if all(view[name] == value for name, value in wanted.items()) else None

        view: dict[str, Any] = eventually(read)
        return view

    def queries(self) -> None:
        send, example = self.judge.send, self.judge.example
        thread = example("createThread", body={"threadKey": "mine"}, status=201)["id"]
        send("createThread", body={"threadKey": "mine"}, status=200)
        glimpse = ("glimpseRef", {"kind": "Orders", "id": self.ids["id"]})
        query = self.submit(glimpse, threadId=thread, metadata={"ticket": "T-17"})
        send("readQuery", {"query_id": query}, query={"waitMs": 20_000})
        self.until(query, status="succeeded")
        self.ids |= {"query_id": query, "thread_id": thread}
        example("readQuery", {"query_id": query})
        example("listQueryEvents", {"query_id": query}, query={"limit": 2})
        example("listQueryWork", {"query_id": query})
        example("readThread", {"thread_id": thread})
        assert example("listThreadMessages", {"thread_id": thread})["items"] is not None
        assert send("readThreadState", {"thread_id": thread})["document"] == {}
        assert send("listStateWrites", {"thread_id": thread})["items"] == []
        fork = example("forkThread", {"thread_id": thread}, body={}, status=201)["id"]
        assert send("listStateWrites", {"thread_id": fork})["items"][0]["forkedFrom"] == f"{thread}@0"
        example("listThreads", query={"limit": 1})
        example("listQueries", query={"status": "succeeded", "limit": 1})
        failed = self.submit(prompt="this is no script")
        self.until(failed, status="failed")
        send("listQueryEvents", {"query_id": failed})
        limited = self.submit(glimpse, glimpse, limits={"maxTurns": 1})
        self.until(limited, reason="limit_reached")
        example("resumeQuery", {"query_id": limited}, {"limits": {"maxTurns": 10}})
        self.until(limited, status="succeeded")
        send("listQueryWork", {"query_id": limited})
        repeated = {"Idempotency-Key": "one"}
        body = {"runtime": "desk", "agent": "clerk", "prompt": '{"script": []}'}
        once = example("submitQuery", body=body, headers=repeated, status=202)
        assert send("submitQuery", body=body, headers=repeated, status=202) == once
        send("submitQuery", body={**body, "agent": "planner"}, headers=repeated, status=409)
        self.until(once["id"], status="succeeded")

    def claim(self, name: str) -> dict[str, Any]:
        def claim() -> Any:
            return self.judge.send("claimToolCall", body={"tools": [{"name": name}]})["calls"]

        call: dict[str, Any] = eventually(claim)[0]
        return call

    def tools(self) -> None:
        send, example = self.judge.send, self.judge.example
        query = self.submit(("find_order", {"order": "o-17"}))
        tools = {"tools": [{"name": "find_order"}]}
        (call,) = example("claimToolCall", body=tools, until=lambda content: content["calls"])["calls"]
        work, token = {"work_id": call["workId"]}, {"claimToken": call["claimToken"]}
        example("releaseToolCall", work, token)
        call = self.claim("find_order")
        token = {"claimToken": call["claimToken"]}
        example("heartbeatToolCall", work, {**token, "leaseMs": 60_000})
        progress = {"label": "Searching", "phaseIndex": 1, "totalPhases": 2, "milestone": "found"}
        example("reportToolProgress", work, {**token, **progress})
        example("emitToolEvent", work, {**token, "eventType": "page-scanned", "data": {"page": 1}})
        send("listQueryEvents", {"query_id": query})
        thread = {"thread_id": send("readQuery", {"query_id": query})["threadId"]}
        write = {"workId": call["workId"], "path": "†state.orders", "method": "push", "value": {"id": 17}}
        example("writeThreadState", thread, write, status=201)
        send("writeThreadState", thread, {**write, "path": "†state"}, status=422)
        example("readThreadState", thread)
        example("listStateWrites", thread)
        place = {"runtime": "desk", "resource": TENANT}
        example("writeMemoryOfCall", place, {**write, "path": "†memory.orders"}, status=201)
        output = {"status": "shipped", "items": [1, None, "x"]}
        assert example("postToolResult", work, {**token, "output": output})["adopted"]
        self.until(query, status="succeeded")
        send("listQueryEvents", {"query_id": query})
        send("listQueryWork", {"query_id": query})
        send("writeThreadState", thread, write, status=409)
        example("listToolCalls", query={"status": "done"})
        self.ids["work_id"] = call["workId"]
        self.submit(("find_order", {"order": "o-18"}))  # stays open

    def client_workspace(self) -> None:
        """A file that an agent publishes from a directory of the user."""
        send, example = self.judge.send, self.judge.example
        editor = {
            "name": "editor",
            "role": "specialist",
            "model": "none",
            "toolkits": ["workspace", "artifacts"],
        }
        spec = {"name": "desk-files", "tenant": SPEC["tenant"], "interpreter": "scripted", "agents": [editor]}
        send("registerRuntime", body={**spec, "workspace": {"transport": "client"}}, status=201)
        file = {"channel": "letters", "path": "letter.md"}
        publish = json.dumps({"tool": "artifact_publish", "args": file})
        body = {"runtime": "desk-files", "agent": "editor", "prompt": publish}
        query = send("submitQuery", body=body, status=202)["id"]
        call = self.claim("workspace")
        place = {"work_id": call["workId"], "path": file["path"]}
        example("copyFile", place, b"Dear customer", media_type=BYTES, status=201)
        send("copyFile", place, b"Dear customer,", media_type=BYTES, status=200)
        result = {"claimToken": call["claimToken"], "output": {"result": [file["path"]]}}
        send("postToolResult", {"work_id": call["workId"]}, result)
        self.until(query, status="succeeded")

    def mcp_servers(self) -> None:
        with fake_mcp_in_a_thread() as url:
            (tool,) = self.judge.example("listMcpTools", body={"url": url})["tools"]
            spec = {**SPEC, "name": "desk-mcp", "tools": [*SPEC["tools"], tool]}
            assert self.judge.send("validateRuntime", body=spec)["valid"]
        self.judge.send("listMcpTools", body={"url": url}, status=422)

    def stored(self, **parts: Any) -> str:
        body = {"runtime": "desk", "specName": "Refunds", "body": BODY, **parts}
        plan: str = self.judge.send("storePlan", body=body, status=201)["id"]
        return plan

    def executed(self, plan: str) -> tuple[str, str]:
        """Return a query that waits at the gate of a plan, and the approval it waits for."""
        accepted = self.judge.send("executePlan", {"plan_id": plan}, {"inputs": {"by": "hand"}}, status=202)
        return accepted["id"], self.gate(accepted["id"])

    def gate(self, query: str) -> str:
        """Return the approval that a query waits for."""
        approval: str = self.until(query, status="waiting", reason="approval")["openApprovals"][0]
        return approval

    def plans(self) -> None:
        send, example = self.judge.send, self.judge.example
        references = [{"kind": "Orders", "id": self.ids["id"]}]
        body = {"actions": [{"kind": "refund", "cents": 1999, "references": references}]}
        request = {
            "runtime": "desk",
            "specName": "Refunds",
            "body": body,
            "planId": "mine",
            "threadKey": "plans",
        }
        example("storePlan", body=request, status=201)
        changed = {"actions": [{**body["actions"][0], "cents": 999}]}
        plan = send("storePlan", body={**request, "body": changed}, status=201)["id"]
        accepted = example("executePlan", {"plan_id": plan}, {"inputs": {"by": "hand"}}, status=202)
        query, approval = accepted["id"], self.gate(accepted["id"])
        self.ids |= {"plan_id": plan, "revision": "2"}
        subject = example("readApprovalSubject", {"approval_id": approval})
        assert subject["kind"] == "plan"
        digest = example("readApproval", {"approval_id": approval})["digest"]
        example("decideApproval", {"approval_id": approval}, {"decision": "approve", "digest": digest})
        send("decideApproval", {"approval_id": approval}, {"decision": "reject"}, status=409)
        call = self.claim("actions.refund")
        assert call["resolvedRefs"]["Orders"]
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
            example(name, {"plan_id": plan})
        example("readPlanRevision", {"plan_id": plan, "revision": 1})
        example("readRevisionChanges", {"plan_id": plan, "revision": 2}, query={"from": 1})
        assert example("drawPlanGraph", {"plan_id": plan}).startswith("flowchart")
        send("listQueryEvents", {"query_id": query})
        send("listQueryWork", {"query_id": query})
        copied, approval = self.executed(plan)
        self.revised(approval)
        self.until(copied, status="succeeded")
        example("listPlans", query={"specName": "Refunds", "limit": 1})

    def approved(self, approval: str, **parts: Any) -> None:
        digest = self.judge.send("readApproval", {"approval_id": approval})["digest"]
        self.judge.send(
            "decideApproval", {"approval_id": approval}, {"decision": "approve", "digest": digest, **parts}
        )

    def revised(self, approval: str) -> None:
        decision = {"decision": "revise", "feedback": "less", "partial": {"cents": 1}}
        self.judge.send("decideApproval", {"approval_id": approval}, decision)

    def unknown_outcome(self) -> None:
        send, example = self.judge.send, self.judge.example
        plan = self.stored()
        query, approval = self.executed(plan)
        self.approved(approval)
        self.claim("actions.refund")
        example("cancelQuery", {"query_id": query})
        settled = example(
            "settleAction",
            {"plan_id": plan, "index": 0},
            {"outcome": "succeeded", "details": {"bank": "paid on Monday"}},
        )
        assert settled["status"] == "succeeded"
        for name in ("readPlan", "listPlanTransitions", "listPlanActions", "readPlanGraph"):
            send(name, {"plan_id": plan})

    def stored_values(self) -> None:
        """A plan that reads a text of its thread's state, which the approval stores."""
        send, thread_key = self.judge.send, "letters"
        letter = {
            "type": "object",
            "properties": {"kind": {"const": "write"}, "text": {"type": "string"}},
            "required": ["kind", "text"],
        }
        letters = {
            "name": "Letters",
            "variables": True,
            "schema": {
                "type": "object",
                "properties": {"actions": {"type": "array", "items": letter}},
                "required": ["actions"],
            },
        }
        clerk, planner = SPEC["agents"]
        spec = {
            **SPEC,
            "name": "desk-letters",
            "agents": [clerk, {**planner, "plan": "Letters"}],
            "plans": [letters],
            "actionDispatchers": {"write": "client"},
        }
        send("registerRuntime", body=spec, status=201)
        runtime = {"runtime": "desk-letters", "threadKey": thread_key}
        query = self.submit(("find_order", {"order": "o-19"}), **runtime)
        thread = {"thread_id": send("readQuery", {"query_id": query})["threadId"]}
        call = self.claim("find_order")
        while call["queryId"] != query:  # the call of another query is open
            call = self.claim("find_order")
        text = "Dear customer, your order is on its way. " * 1000
        write = {"workId": call["workId"], "path": "†state.letter", "value": text}
        send("writeThreadState", thread, write, status=201)
        send(
            "postToolResult", {"work_id": call["workId"]}, {"claimToken": call["claimToken"], "output": "ok"}
        )
        self.until(query, status="succeeded")
        body = {"actions": [{"kind": "write", "text": "†state.letter"}]}
        _, approval = self.executed(self.stored(**runtime, specName="Letters", body=body))
        value = self.judge.example(
            "readApprovalValue", {"approval_id": approval}, query={"path": "†state.letter", "limit": 40}
        )
        assert value["text"].startswith('"Dear customer')
        send("decideApproval", {"approval_id": approval}, {"decision": "reject"})

    def approvals(self) -> None:
        send, example = self.judge.send, self.judge.example
        query = self.submit(("send_voucher", {"cents": 500}))
        waiting = self.until(query, reason="approval")
        approval, thread = waiting["openApprovals"][0], {"thread_id": waiting["threadId"]}
        send("deleteThread", thread, status=409)
        send("readApproval", {"approval_id": approval})
        send("readApprovalSubject", {"approval_id": approval})
        example("listApprovals", query={"status": "pending"})
        assert example("countPendingApprovals")["pending"]
        example("postApprovalComment", {"approval_id": approval}, {"text": "Why?"}, status=201)
        example("listApprovalComments", {"approval_id": approval})
        example(
            "decideApprovals", body={"decisions": [{"id": approval, "decision": "reject", "feedback": "no"}]}
        )
        self.until(query, status="succeeded")
        send("listQueryEvents", {"query_id": query})
        assert example("deleteThread", thread)["deleted"]
        send("deleteThread", thread, status=404)
        assert send("readApproval", {"approval_id": approval})["status"] == "rejected"
        send("readApprovalSubject", {"approval_id": approval}, status=410)
        send("readApprovalValue", {"approval_id": approval}, query={"path": "†state.rows"}, status=410)
        send("postApprovalComment", {"approval_id": approval}, {"text": "Why?"}, status=410)
        send("listApprovals", query={"threadId": thread["thread_id"]})
        remembered = self.submit(("send_voucher", {"cents": 2}))
        approval = self.until(remembered, reason="approval")["openApprovals"][0]
        send("decideApproval", {"approval_id": approval}, {"decision": "approve"}, status=422)
        self.approved(approval, args={"cents": 1}, scope="thread")
        send("decideApproval", {"approval_id": approval}, {"decision": "reject", "args": {}}, status=422)
        (grant,) = example("listGrants", query={"active": True})["items"]
        example("revokeGrant", {"grant_id": grant["id"]})
        send("cancelQuery", {"query_id": remembered})
        self.ids["grant_id"] = grant["id"]
        waiting = self.submit(("send_voucher", {"cents": 2}))
        self.ids["approval_id"] = self.until(waiting, reason="approval")["openApprovals"][0]
        self.stored(planId="a draft", threadKey="drafts")
        send("listApprovals")

    def streams(self) -> None:
        judge, query = self.judge, self.ids["query_id"]
        events = judge.stream("streamQuery", 1000, {"query_id": query})
        assert events[-1]["type"] == "finish"
        judge.stream("streamToolCalls", 1)
        body = {"runtime": "desk", "agent": "clerk", "prompt": '{"script": []}'}
        cursor = judge.send("listEvents")["nextCursor"]
        assert judge.stream("streamNewQuery", 1000, json=body)[-1]["type"] == "finish"
        judge.stream("streamEvents", 3, params={"after": cursor})
        judge.send("listEvents", query={"after": cursor, "types": "text,finish"})
        judge.example("listEvents", query={"after": cursor, "limit": 2})

    def keys_and_secrets(self) -> None:
        send, example = self.judge.send, self.judge.example
        body = {"principal": "ann", "scopes": ["read"], "expiresAt": "2099-01-02T03:04:05Z"}
        key = example("createKey", body=body, status=201)["id"]
        serving = {"principal": "bo", "scopes": ["tools:serve"], "tools": ["find_order"]}
        send("createKey", body=serving, status=201)
        example("listKeys", query={"limit": 1})
        example("revokeKey", {"key_id": key})
        send("listKeys")
        send("putSecret", {"name": "old-token"}, {"value": "x"})
        example("putSecret", {"name": "bank-token"}, {"value": "x"})
        example("listSecrets")
        example("deleteSecret", {"name": "old-token"})
        self.ids |= {"key_id": key, "name": "bank-token", "index": "0"}
