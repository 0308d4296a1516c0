"""A request with many errors lists the first ones and says whether there are more."""

from __future__ import annotations

from typing import Any

import pytest

from app.base.errors import MAX_LISTED_ERRORS
from tests.support import specs
from tests.support.client import Caller, good, refused

MAX_ANSWER_BYTES = 64 * 1024
UNKNOWN = {f"k{n}": 0 for n in range(70_000)}
ROUTES = ("/queries", "/approvals", "/tool-calls/wrk_x/result", "/runtimes")


async def first_errors(response: Any) -> list[dict[str, str]]:
    assert len(response.content) < MAX_ANSWER_BYTES
    body = refused(response, 422, "invalid")
    assert "ore than 20" in body["detail"]
    assert len(body["errors"]) == MAX_LISTED_ERRORS
    assert body["hasMoreErrors"] is True
    errors: list[dict[str, str]] = body["errors"]
    return errors


@pytest.mark.parametrize("path", ROUTES)
async def test_the_first_of_many_unknown_fields_are_listed(api: Caller, path: str) -> None:
    errors = await first_errors(await api.post(path, UNKNOWN))
    known = ("required", "unknown field", "field 'tenant' is required", "field 'agents' is required")
    assert all(error["message"].startswith(known) for error in errors)


async def test_400_000_wrong_tags_are_one_error(api: Caller) -> None:
    body = {"threadId": "thr_x", "channel": "design", "path": "a", "tags": [0] * 400_000}
    response = await api.post("/artifacts", body)
    assert len(response.content) < 1000
    problem = refused(response, 422, "invalid")
    assert problem["errors"] == [{"pointer": "/tags", "message": "it holds more than 20 entries"}]
    assert problem["hasMoreErrors"] is False


async def test_wrong_elements_of_a_long_list_are_listed_up_to_the_maximum(api: Caller) -> None:
    errors = await first_errors(await api.post("/tool-calls/claim", {"tools": [{"x": 0}] * 500}))
    assert errors[0] == {"pointer": "/tools/0/name", "message": "required"}


async def test_a_spec_is_checked_up_to_the_first_errors(api: Caller) -> None:
    spec = specs.spec(specs.agent(tools=[f"gone{n}" for n in range(500)]))
    checked = good(await api.post("/runtimes/validate", spec))
    assert len(checked["errors"]) == MAX_LISTED_ERRORS
    assert checked["hasMoreErrors"] is True
    assert await first_errors(await api.post("/runtimes", spec)) == checked["errors"]


async def test_has_more_errors_is_false_for_few_errors(api: Caller) -> None:
    checked = good(await api.post("/runtimes/validate", specs.spec(specs.agent(tools=["gone"]))))
    assert (len(checked["errors"]), checked["hasMoreErrors"]) == (1, False)
    checked = good(await api.post("/runtimes/validate", specs.mock()))
    assert (checked["errors"], checked["hasMoreErrors"]) == ([], False)


async def test_unknown_parameters_are_listed_up_to_the_maximum(api: Caller) -> None:
    errors = (await api.request("GET", "/queries?" + "&".join(f"k{n}=0" for n in range(5_000)))).json()
    assert (len(errors["errors"]), errors["hasMoreErrors"]) == (MAX_LISTED_ERRORS, True)


async def test_wrong_names_of_data_are_listed_up_to_the_maximum(api: Caller) -> None:
    await api.register(specs.mock())
    data = {f"no name {n}": 0 for n in range(40_000)}
    problem = refused(await api.post("/queries", {"prompt": "x", "data": data}), 422, "invalid")
    assert (len(problem["errors"]), problem["hasMoreErrors"]) == (MAX_LISTED_ERRORS, True)


async def test_wrong_inputs_are_listed_up_to_the_maximum(api: Caller) -> None:
    numbers = {"properties": {"n": {"items": {"type": "integer"}}}}
    await api.register(specs.mock(inputSchema=numbers))
    inputs = {"n": ["x"] * 1_000}
    problem = refused(await api.post("/queries", {"prompt": "x", "inputs": inputs}), 422, "invalid")
    assert (len(problem["errors"]), problem["hasMoreErrors"]) == (MAX_LISTED_ERRORS, True)
    assert problem["errors"][0]["pointer"] == "/inputs/n/0"


async def test_of_large_inputs_only_the_first_error_is_listed(api: Caller) -> None:
    numbers = {"properties": {"n": {"items": {"type": "integer"}}}}
    await api.register(specs.mock(inputSchema=numbers))
    inputs = {"n": [0] * 50_000 + ["x"] * 50_000}
    problem = refused(await api.post("/queries", {"prompt": "x", "inputs": inputs}), 422, "invalid")
    assert [error["pointer"] for error in problem["errors"]] == ["/inputs/n/50000"]


async def test_long_names_do_not_make_long_answers(api: Caller) -> None:
    response = await api.post("/queries", {"prompt": "x", "k" * 1_000_000: 0})
    assert len(response.content) < 5_000
    response = await api.post("/runtimes/validate", {**specs.mock(), "tools": [{"name": "x" * 1_000_000}]})
    assert len(response.content) < 5_000
