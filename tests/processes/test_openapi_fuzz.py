"""A running service answers as its API document says: each operation once, then fuzzed, then with values that once
failed.

The document is taken at its word: an answer of a status that it does not list, another content type, a field that it
does not know, a header that it promises and that is missing are failures, although clients must bear new fields.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode

from app.api.openapi import operations, scope_of
from tests.support.api_world import BODY, JSON, SPEC, TENANT, Judge, World, running_judge

pytestmark = pytest.mark.long

FUZZ_S = 25.0
"""Time for the fuzzer, over all operations."""
EXAMPLES = 8
"""Of each operation and kind of data, while there is time."""
ENDLESS = {"streamToolCalls", "streamEvents"}
STREAMS = {"streamQuery", "streamNewQuery"}
"""What the fuzzer leaves out: it can read an answer only whole, and these may follow a query that waits."""


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with running_judge() as judge:
        yield judge


@pytest.fixture(scope="module")
def ids(judge: Judge) -> dict[str, str]:
    return World(judge).build()


def test_every_operation_succeeds_as_documented(judge: Judge, ids: dict[str, str]) -> None:
    print(*(f"{name} {status}: {count}" for (name, status), count in sorted(judge.answers.items())), sep="\n")
    assert judge.unanswered() == []
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
        headers = {"Host": self._at.netloc, "Accept": JSON, **self._judge.headers}
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


def test_hostile_values_are_rejected_with_a_problem(judge: Judge, ids: dict[str, str]) -> None:
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
    known = {name: quote(id_for(path, name, ids)) for name in names}
    real = _filled(path, known)
    fields, valid = _body(document, operation)
    whole = None if fields is None else _encoded(valid)
    for name in names:
        for value in RAW:
            yield _filled(path, {**known, name: value}), whole, None
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


def id_for(path: str, name: str, ids: dict[str, str]) -> str:
    """Return the id for a parameter of a path: that of the path's first segment, if there is one, else the general one."""
    return ids.get(f"{path.split('/')[1]}.{name}") or ids[name]


DESTRUCTIVE = {
    "deleteMemory",
    "deleteSource",
    "deleteCatalogEntry",
    "deleteFile",
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
    "specName": "Refunds",
    "body": BODY,
    "outcome": "failed",
    "kind": "Orders",
    "value": {"orders": [1]},
    "claimToken": "x",
    "eventType": "x",
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
    "text": "x",
    "reason": "x",
    "entries": [{"id": "knowledge:x", "kind": "knowledge", "name": "x"}],
}


def _encoded(fields: dict[str, str]) -> bytes:
    """An object of values that are JSON already, or are meant not to be."""
    return ("{" + ", ".join(f'"{name}": {value}' for name, value in fields.items()) + "}").encode()


# What a fuzzer thinks of.


def test_every_response_conforms_to_the_document(judge: Judge, ids: dict[str, str]) -> None:
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
    path = {name: id_for(operation.path, name, known) for name in named & known.keys()}
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
