"""A caller of the API: one key, and the requests that tests share."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import httpx

PATIENCE_S = 30.0


class Caller:
    """Requests under one key. `get`, `post`, ... give the response; the verbs below insist on success."""

    def __init__(self, http: httpx.AsyncClient, key: str | None, **headers: str) -> None:
        self._http = http
        self.key = key
        self.reader = self
        """Who reads the approvals that this caller decides: a key may decide without reading."""
        self.headers = {**({"authorization": f"Bearer {key}"} if key else {}), **headers}

    async def request(self, method: str, path: str, **parts: Any) -> httpx.Response:
        headers = {**self.headers, **parts.pop("headers", {})}
        return await self._http.request(method, path, headers=headers, **parts)

    async def get(self, path: str, **params: Any) -> httpx.Response:
        return await self.request("GET", path, params=params or None)

    async def post(self, path: str, body: Any = None, **parts: Any) -> httpx.Response:
        return await self.request("POST", path, json=body, **parts)

    async def put(self, path: str, body: Any) -> httpx.Response:
        return await self.request("PUT", path, json=body)

    async def delete(self, path: str) -> httpx.Response:
        return await self.request("DELETE", path)

    # -- verbs that must succeed -----------------------------------------------------------------------------

    async def read(self, path: str, **params: Any) -> Any:
        return good(await self.get(path, **params))

    async def do(self, path: str, body: Any = None, **parts: Any) -> Any:
        return good(await self.post(path, body, **parts))

    async def register(self, spec: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = await self.do("/runtimes", spec)
        return found

    async def submit(self, prompt: str = "hi", **parts: Any) -> dict[str, Any]:
        accepted: dict[str, Any] = await self.do("/queries", {"prompt": prompt, **parts})
        return accepted

    async def run(self, prompt: str = "hi", **parts: Any) -> dict[str, Any]:
        """Submits and waits for the end."""
        accepted = await self.submit(prompt, **parts)
        return await self.ended(accepted["id"])

    async def ended(self, query_id: str) -> dict[str, Any]:
        found: dict[str, Any] = await self.read(f"/queries/{query_id}", waitMs=int(PATIENCE_S * 1000))
        assert found["endedAt"], f"{query_id} is still {found['status']} ({found['reason']})"
        return found

    async def until(self, query_id: str, status: str, reason: str | None = None) -> dict[str, Any]:
        """The query once it has this status."""

        async def there() -> Any:
            found = await self.read(f"/queries/{query_id}")
            return found if found["status"] == status and reason in (None, found["reason"]) else None

        found: dict[str, Any] = await eventually(there, f"{query_id} {status}")
        return found

    async def events(self, query_id: str, *types: str) -> list[dict[str, Any]]:
        """The whole journal, or what of it is of these types."""
        out: list[dict[str, Any]] = []
        cursor: dict[str, str] = {}
        while True:
            found = await self.read(f"/queries/{query_id}/events", limit=500, **cursor)
            out += found["events"]
            if found["done"] or not found["events"]:
                return [e for e in out if not types or e["type"] in types]
            cursor = {"after": found["nextCursor"]}

    async def gate(self, query_id: str, not_: str | None = None) -> dict[str, Any]:
        """The approval that the query waits for, once it is open."""

        async def there() -> Any:
            rows = (await self.read("/approvals", queryId=query_id, status="pending"))["items"]
            return next((r for r in rows if r["id"] != not_), None)

        found: dict[str, Any] = await eventually(there, f"{query_id} waits for an approval")
        return found

    async def decide(self, approval_id: str, decision: str = "approve", **parts: Any) -> httpx.Response:
        """Decide about the approval as it is now, unless a `digest` is given."""
        if decision == "approve" and "digest" not in parts:
            found = await self.reader.get(f"/approvals/{approval_id}")
            parts["digest"] = found.json()["digest"] if found.is_success else "0" * 64
        return await self.post(f"/approvals/{approval_id}", {"decision": decision, **parts})

    async def approve(self, query_id: str) -> dict[str, Any]:
        approval = await self.gate(query_id)
        decided: dict[str, Any] = good(await self.decide(approval["id"], digest=approval["digest"]))
        return decided

    async def claim(self, *names: str, max: int = 1) -> list[dict[str, Any]]:
        """Open calls of these tools, once there are any."""

        async def there() -> Any:
            served = [{"name": name} for name in names]
            return (await self.do("/tool-calls/claim", {"tools": served, "max": max}))["calls"] or None

        found: list[dict[str, Any]] = await eventually(there, f"a call of {names}")
        return found

    async def result(
        self, call: dict[str, Any], output: Any = None, error: str | None = None
    ) -> httpx.Response:
        body = {"claimToken": call["claimToken"], **({"error": error} if error else {"output": output})}
        return await self.post(f"/tool-calls/{call['workId']}/result", body)

    async def serve(self, name: str, output: Any = None, error: str | None = None) -> dict[str, Any]:
        """Takes one call and answers it."""
        (call,) = await self.claim(name)
        assert good(await self.result(call, output, error))["adopted"]
        return call


def good(response: httpx.Response) -> Any:
    assert response.is_success, f"{response.status_code}: {response.text[:2000]}"
    return response.json()


def refused(response: httpx.Response, status: int, slug: str | None = None) -> dict[str, Any]:
    """The problem document of a refusal; checks its shape."""
    assert response.status_code == status, f"{response.status_code}: {response.text[:2000]}"
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert {"type", "title", "status", "detail", "instance"} <= body.keys()
    assert body["status"] == status
    assert body["detail"]
    assert body["instance"] == response.request.url.path
    for flaw in body.get("errors", []):
        assert flaw.keys() == {"pointer", "message"}
    if slug is not None:
        assert body["type"] == slug
    return body


async def eventually(look: Callable[[], Awaitable[Any]], what: str, patience_s: float = PATIENCE_S) -> Any:
    """What `look` gives, once it is anything but None or False."""
    deadline = time.monotonic() + patience_s
    delay = 0.005
    while True:
        found = await look()
        if found is not None and found is not False:
            return found
        assert time.monotonic() < deadline, f"not within {patience_s} s: {what}"
        await asyncio.sleep(delay)
        delay = min(delay * 1.5, 0.1)


def output_of(query: dict[str, Any]) -> Any:
    """The results that a script ended with."""
    assert query["status"] == "succeeded", query
    return json.loads(query["output"])["results"]


def inner(entry: dict[str, Any]) -> Any:
    """The one result of the sub-agent's script behind a `call_agent`."""
    found = entry["result"]["results"][0]
    return found.get("result", found.get("error"))
