"""The pages of the HTTP API: the three forms of a request are one request, and no operation is missing."""

from __future__ import annotations

import ast
import inspect
import itertools
import json
import re
import shlex
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from plangate.api.calls import Api

from docsite.api_reference import EXAMPLE_BODY, STREAMS, pages
from tests.support.guides import FENCE, ROOT

DOCUMENT = json.loads((ROOT / "openapi/openapi.json").read_bytes())
PAGES = pages(DOCUMENT)
SECTIONS = [
    section
    for file, page in PAGES.items()
    if not file.endswith("README.md")
    for section in page.split("\n## ")[1:]
    if not section.startswith("Types\n")
]
OPERATIONS = {
    f"{method.upper()} {path}": operation
    for path, item in DOCUMENT["paths"].items()
    for method, operation in item.items()
    if method in ("get", "put", "post", "patch", "delete")
}


def address(section: str) -> str:
    found = re.search(r"^`([A-Z]+ /\S*)`$", section, re.MULTILINE)
    assert found is not None
    return found[1]


def program(section: str, language: str) -> str:
    return next(match[3] for match in FENCE.finditer(section) if match[2] == language)


def sent_by_curl(command: str) -> tuple[str, str, dict[str, str], Any]:
    """Return the method, path, query and body of a command."""
    words = shlex.split(command)
    target = urlsplit(words[2].replace("$PLANGATE_URL", "http://plangate"))
    options = dict(itertools.pairwise(words))
    body = json.loads(options["--json"]) if "--json" in options else options.get("--data-binary")
    method = options.get("-X", "POST" if body is not None else "GET")
    return method, target.path, dict(parse_qsl(target.query)), body


class Recorder(Api):
    """Keeps the requests of the library in place of sending them."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str, dict[str, str], Any]] = []

    async def _call(
        self,
        kind: Any,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        data: Any = None,
        params: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> Any:
        query = {name: str(value) for name, value in (params or {}).items() if value is not None}
        self.sent.append((method, path, query, body if data is None else f"@{EXAMPLE_BODY}"))


async def sent_by_python(code: str) -> tuple[str, str, dict[str, str], Any]:
    """Run a program with a library that sends nothing, and return its request."""
    api = Recorder()
    file = SimpleNamespace(read_bytes=lambda: b"")
    names = {"runtime": SimpleNamespace(api=api), "Path": lambda name: file}
    running = eval(compile(code, "example", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
    assert inspect.iscoroutine(running)
    await running
    (request,) = api.sent
    return request


def test_each_operation_has_a_section() -> None:
    assert sorted(map(address, SECTIONS)) == sorted(OPERATIONS)


def test_each_type_that_a_page_names_has_a_section_there() -> None:
    for file, page in PAGES.items():
        named = set(re.findall(r"\]\(#([\w-]+)\)", page))
        assert named <= {title.lower() for title in re.findall(r"^### (\w+)$", page, re.MULTILINE)}, file


@pytest.mark.parametrize("section", SECTIONS, ids=address)
async def test_curl_and_python_send_the_same_request(section: str) -> None:
    method, path, query, body = sent_by_curl(program(section, "bash"))
    assert method == address(section).partition(" ")[0]
    code = program(section, "python")
    if OPERATIONS[address(section)]["operationId"] in STREAMS:
        compile(code, "example", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        return
    assert await sent_by_python(code) == (method, path, query, body)
