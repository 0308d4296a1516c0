"""Runtimes over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Body, Path, Query, Request, Response
from plangate.spec.approvals import tool_rule
from plangate.spec.models import RuntimeSpec
from plangate.spec.toolkits import builtin_tools
from plangate.spec.variable_schemas import agent_schema, has_variables

from app.base.clock import rfc3339
from app.base.errors import Invalid, NotFound, list_errors
from app.base.json import strict_json
from app.base.postgres.database import Tx
from app.runtimes import store, views
from app.runtimes.checks import assemble_wire
from app.runtimes.large_specs import LARGE_SPEC_BYTES, LargeSpec
from app.runtimes.secrets import move_secrets
from app.runtimes.service import Runtimes
from app.runtimes.signing import SigningSecrets, is_signed
from app.tenancy.floor import load_floor
from app.tenancy.http import (
    Cursor,
    GatedRoute,
    Limit,
    Reply,
    answer,
    before,
    calling,
    door_of,
    json_response,
    page,
    reading,
    repeated,
)
from app.tenancy.models import Caller


class SpecRoute(GatedRoute):
    """A large spec is parsed and checked in a process of its own; only the tenant that it names comes here."""

    @asynccontextmanager
    async def opened(self, request: Request, body: bytearray) -> AsyncIterator[None]:
        if len(body) <= LARGE_SPEC_BYTES:
            async with super().opened(request, body):
                yield
            return
        request._body = bytes(body)
        async with runtimes_of(request).large.open(body) as spec:
            request.state.large_spec = spec
            request._json = {"tenant": {"resourceId": spec.tenant}} if spec.is_object else []
            yield


router = APIRouter(route_class=GatedRoute, tags=["runtimes"])
specs = APIRouter(route_class=SpecRoute, tags=["runtimes"])

RuntimeId = Annotated[str, Path(max_length=100)]
AgentName = Annotated[str, Path(max_length=100)]
Spec = Annotated[dict[str, Any], Body(description="A RuntimeSpec.")]


def runtimes_of(request: Request) -> Runtimes:
    runtimes: Runtimes = request.app.state.services.runtimes
    return runtimes


@specs.post(
    "/runtimes",
    status_code=201,
    summary="Register a spec; the same content gives the same runtime",
    description="A literal `apiKey` of a provider is moved into a secret before anything is stored. The first runtime "
    "of its name that has the transport `http` is answered with the `signingSecret` of its calls, once. MCP servers are "
    "asked for the definitions of the tools that the spec names, and the digests of these are put into the spec.",
    response_model=views.RegisteredRuntime,
    responses={200: {"model": views.RegisteredRuntime, "description": "This version is registered already."}},
)
async def register_runtime(
    request: Request, spec: Spec, caller: Annotated[Caller, calling("runtimes:write")]
) -> Response:
    wire, literals = await _assembled(request, spec)
    if wire["tenant"]["resourceId"] != caller.tenant:
        raise NotFound(
            f"tenant.resourceId is {wire['tenant']['resourceId']!r}; this key works for {caller.tenant!r}."
        )
    first = await repeated(request, caller)
    if first is not None:
        return first
    services = request.app.state.services
    wire = await services.mcp_pinning.pin(caller.tenant, wire)

    name = wire.get("name") or "default"
    signed = await asyncio.to_thread(lambda: is_signed(RuntimeSpec.model_validate(wire)))
    data = await asyncio.to_thread(strict_json.canonical, wire)

    async def register(tx: Tx) -> Reply:
        for secret_name, value in literals.items():
            await services.secrets.put(tx, secret_name, value)
        row, new = await services.runtimes.register(tx, name, data)
        shown = _wire(row)
        secret = None
        if signed:
            secret = await services.signing.ensure(tx, row["name"])
        if secret is not None:
            shown["signingSecret"] = secret
        status = 201 if new else 200
        return Reply(shown, status, f"/runtimes/{row['id']}", row["id"], secret=secret is not None)

    return await answer(request, caller, register)


@specs.post(
    "/runtimes/validate",
    summary="Check a spec without storing it; returns the first errors",
    response_model=views.Validation,
)
async def validate_runtime(
    request: Request, spec: Spec, caller: Annotated[Caller, calling("runtimes:write")]
) -> Response:
    try:
        wire, _ = await _assembled(request, spec, caller.tenant)
        wire = await request.app.state.services.mcp_pinning.pin(caller.tenant, wire)
    except Invalid as error:
        return json_response({"valid": False, **list_errors(error.errors)})
    body = {"valid": True, **list_errors([]), "spec": wire}
    return json_response(await asyncio.to_thread(strict_json.dumps, body))


@router.get("/runtimes", summary="List registered versions, newest first", response_model=views.RuntimePage)
async def list_runtimes(
    request: Request,
    caller: Annotated[Caller, calling("read")],
    limit: Limit = 50,
    cursor: Cursor = None,
    name: Annotated[str | None, Query(max_length=200)] = None,
) -> Response:
    position = before(request, "runtimes", cursor)

    async def listed(tx: Tx) -> Any:
        rows = await store.page(tx, str(position[0]) if position else None, name, limit + 1)
        return page(request, "runtimes", [_row(r) for r in rows], limit, lambda r: [r["id"]])

    return await reading(request, caller, listed)


@router.get(
    "/runtimes/{runtime_id}", summary="Read a version with its spec", response_model=views.RuntimeView
)
async def read_runtime(
    request: Request, runtime_id: RuntimeId, caller: Annotated[Caller, calling("read")]
) -> Response:
    async def read(tx: Tx) -> Any:
        return _wire(await _existing(tx, runtime_id))

    return await reading(request, caller, read)


@router.delete(
    "/runtimes/{runtime_id}",
    summary="Retire a version: running queries keep it, new ones cannot name it",
    response_model=views.RuntimeView,
)
async def retire_runtime(
    request: Request, runtime_id: RuntimeId, caller: Annotated[Caller, calling("runtimes:write")]
) -> Response:
    async def retire(tx: Tx) -> Any:
        await _existing(tx, runtime_id)
        await store.retire(tx, runtime_id)
        return _wire(await _existing(tx, runtime_id))

    return await reading(request, caller, retire)


@router.get(
    "/runtimes/{runtime_id}/agents/{agent}/prompt",
    summary="The assembled prompt of an agent",
    response_model=views.AssembledPrompt,
)
async def agent_prompt(
    request: Request, runtime_id: RuntimeId, agent: AgentName, caller: Annotated[Caller, calling("read")]
) -> Response:
    runtime = await runtimes_of(request).get(caller.tenant, runtime_id)
    found = runtime.agent(agent)
    return json_response({"agent": agent, "text": found.system_prompt, "cacheKey": runtime.prompt_key(agent)})


@router.get(
    "/runtimes/{runtime_id}/agents/{agent}/tools",
    summary="An agent's tools, each with the rule in force",
    response_model=views.AgentToolList,
)
async def agent_tools(
    request: Request, runtime_id: RuntimeId, agent: AgentName, caller: Annotated[Caller, calling("read")]
) -> Response:
    runtime = await runtimes_of(request).get(caller.tenant, runtime_id)
    found = runtime.agent(agent)
    async with door_of(request).db.transaction(caller.tenant) as tx:
        floor = await load_floor(tx)
    tools: list[dict[str, Any]] = [
        {
            "name": t.name,
            "description": t.description,
            "inputSchema": t.input_schema,
            "transport": "builtin",
            "toolkit": t.toolkit,
        }
        for t in builtin_tools(runtime.spec, found)
    ]
    for name in found.tools:
        tool = runtime.tools[name]
        tools.append(
            {
                "name": name,
                "description": tool.description,
                "inputSchema": tool.input_schema,
                "transport": tool.transport.kind,
            }
        )
    for entry in tools:
        if has_variables(found):
            entry["inputSchema"] = agent_schema(entry["name"], entry["inputSchema"])
        resolved = tool_rule(runtime.spec, agent, entry["name"], floor)
        entry["approval"] = resolved.rule.to_wire()
        entry["approvalOrigin"] = resolved.origin
    return json_response({"agent": agent, "tools": tools})


@router.post(
    "/runtimes/{runtime_id}/signing-secret",
    summary="Make a new signing secret for every version of the runtime's name; the old one signs for a day more",
    response_model=views.SigningSecret,
)
async def rotate_signing_secret(
    request: Request, runtime_id: RuntimeId, caller: Annotated[Caller, calling("runtimes:write")]
) -> Response:
    signing: SigningSecrets = request.app.state.services.signing

    async def rotate(tx: Tx) -> Reply:
        name = (await _existing(tx, runtime_id))["name"]
        return Reply(
            {"runtimeName": name, "signingSecret": await signing.rotate(tx, name)},
            object_id=runtime_id,
            secret=True,
        )

    return await answer(request, caller, rotate)


async def _assembled(
    request: Request, spec: dict[str, Any], tenant: str | None = None
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the wire form of the assembled spec, and its literal secrets. This runs in a thread because it takes time; a
    large spec is assembled in a process of its own."""
    large: LargeSpec | None = getattr(request.state, "large_spec", None)
    if large is not None:
        return await large.assemble(tenant)
    spec, literals = move_secrets(spec)
    wire = await asyncio.to_thread(assemble_wire, spec, runtimes_of(request).environment, tenant)
    return wire, literals


async def _existing(tx: Tx, runtime_id: str) -> Any:
    row = await store.by_id(tx, runtime_id)
    if row is None:
        raise NotFound(f"There is no runtime {runtime_id!r}.")
    return row


def _row(row: Any) -> dict[str, Any]:
    return {
        "id": row["id"],
        "name": row["name"],
        "version": row["version"],
        "digest": row["digest"].hex(),
        "createdAt": rfc3339(row["created_at"]),
        "retiredAt": rfc3339(row["retired_at"]) if row["retired_at"] else None,
    }


def _wire(row: Any) -> dict[str, Any]:
    return {**_row(row), "spec": orjson.Fragment(row["wire"])}
