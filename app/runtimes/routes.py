"""Runtimes over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Body, Path, Query, Request, Response
from plangate.spec.approvals import tool_rule
from plangate.spec.models import RuntimeSpec
from plangate.spec.toolkits import builtin_tools
from plangate.spec.variable_schemas import agent_schema, has_variables
from plangate.spec.vendors import VENDORS

from app.base.errors import Invalid, NotFound, list_errors
from app.base.json import strict_json
from app.base.json.offload import loads, offload
from app.base.json.process_pool import JsonProcess
from app.base.responses import to_wire
from app.runtimes import store, views
from app.runtimes.large_specs import LARGE_SPEC_BYTES, assemble_large_spec, assemble_spec, parse_spec
from app.runtimes.models import RuntimeRecord
from app.runtimes.service import Runtimes
from app.runtimes.signing import SigningSecrets, is_signed
from app.tenancy.floor import load_floor
from app.tenancy.http import (
    GatedRoute,
    Operation,
    Paging,
    ReadOperation,
    begin,
    json_response,
    operation,
    raise_if_repeated,
    require_scope,
    service,
)
from app.tenancy.models import Caller
from app.tenancy.secrets import Secrets


class SpecPinner(Protocol):
    """Adds the digests of MCP servers' tools to a spec."""

    async def pin(self, tenant: str, wire: dict[str, Any]) -> dict[str, Any]:
        """Return the spec with the definitions' digests. Raise Invalid."""


class VendorLoader(Protocol):
    """Loads what the process needs to call models."""

    async def load_vendors(self, kinds: Collection[str]) -> None:
        """Import the SDKs of these vendors."""


class SpecRoute(GatedRoute):
    """Parses and checks large specs in a separate process and passes only the named tenant to the handler."""

    @asynccontextmanager
    async def parse_body(self, request: Request, body: bytearray) -> AsyncIterator[None]:
        if len(body) <= LARGE_SPEC_BYTES:
            async with super().parse_body(request, body):
                yield
            return
        request._body = bytes(body)
        async with runtimes_of(request).processes.open(request=True) as process:
            request.state.spec_process = process
            is_object, tenant = await process.keep(parse_spec, body)
            request._json = {"tenant": {"resourceId": tenant}} if is_object else []
            yield


router = APIRouter(route_class=GatedRoute, tags=["runtimes"])
specs = APIRouter(route_class=SpecRoute, tags=["runtimes"])

RuntimeId = Annotated[str, Path(max_length=100)]
AgentName = Annotated[str, Path(max_length=100)]
Registered = Annotated[Runtimes, service("runtimes")]
Pinning = Annotated[SpecPinner, service("mcp_pinning")]
Vendors = Annotated[VendorLoader, service("providers")]
Signing = Annotated[SigningSecrets, service("signing")]
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
    request: Request,
    spec: Spec,
    caller: Annotated[Caller, require_scope("runtimes:write")],
    runtimes: Registered,
    pinning: Pinning,
    vendors: Vendors,
    secrets: Annotated[Secrets, service("secrets")],
    signing: Signing,
) -> Response:
    wire, literals = await _assembled(request, spec)
    if wire["tenant"]["resourceId"] != caller.tenant:
        raise NotFound(
            f"tenant.resourceId is {wire['tenant']['resourceId']!r}; this key works for {caller.tenant!r}."
        )
    await raise_if_repeated(request, caller)
    wire = await pinning.pin(caller.tenant, wire)
    signed = await asyncio.to_thread(lambda: is_signed(RuntimeSpec.model_validate(wire)))
    data = await asyncio.to_thread(strict_json.canonical, wire)
    if not wire.get("interpreter"):
        await vendors.load_vendors([kind for kind in VENDORS if f'"{kind}"'.encode() in data])
    async with begin(request, caller) as op:
        for secret_name, value in literals.items():
            await secrets.put(op.tx, secret_name, value)
        record, new = await runtimes.register(op.tx, wire.get("name") or "default", data)
        secret = await signing.ensure(op.tx, record.name) if signed else None
        extra = {} if secret is None else {"signing_secret": secret}
        return await op.respond(
            to_wire(views.RegisteredRuntime, record, spec=record.wire, **extra),
            201 if new else 200,
            f"/runtimes/{record.id}",
            record.id,
            secret=secret is not None,
        )


@specs.post(
    "/runtimes/validate",
    summary="Check a spec without storing it; returns the first errors",
    response_model=views.Validation,
)
async def validate_runtime(
    request: Request, spec: Spec, caller: Annotated[Caller, require_scope("runtimes:write")], pinning: Pinning
) -> Response:
    try:
        wire, _ = await _assembled(request, spec, caller.tenant)
        wire = await pinning.pin(caller.tenant, wire)
    except Invalid as error:
        return json_response({"valid": False, **list_errors(error.errors)})
    body = {"valid": True, **list_errors([]), "spec": wire}
    return json_response(await asyncio.to_thread(strict_json.dumps, body))


@router.get("/runtimes", summary="List registered versions, newest first", response_model=views.RuntimePage)
async def list_runtimes(
    op: ReadOperation,
    page: Paging,
    name: Annotated[str | None, Query(max_length=200)] = None,
) -> Response:
    versions = await store.page(op.tx, before=page.last("runtimes"), name=name, limit=page.rows)
    return await op.respond(page.body([to_wire(views.RuntimeSummary, version) for version in versions], "id"))


@router.get(
    "/runtimes/{runtime_id}", summary="Read a version with its spec", response_model=views.RuntimeView
)
async def read_runtime(runtime_id: RuntimeId, op: ReadOperation, runtimes: Registered) -> Response:
    return await op.respond(_with_spec(await runtimes.read(op.tx, runtime_id)))


@router.delete(
    "/runtimes/{runtime_id}",
    summary="Retire a version: running queries keep it, new ones cannot name it",
    response_model=views.RuntimeView,
)
async def retire_runtime(
    runtime_id: RuntimeId, op: Annotated[Operation, operation("runtimes:write")], runtimes: Registered
) -> Response:
    return await op.respond(_with_spec(await runtimes.retire(op.tx, runtime_id)))


@router.get(
    "/runtimes/{runtime_id}/agents/{agent}/prompt",
    summary="The assembled prompt of an agent",
    response_model=views.AssembledPrompt,
)
async def read_agent_prompt(
    runtime_id: RuntimeId,
    agent: AgentName,
    caller: Annotated[Caller, require_scope("read")],
    runtimes: Registered,
) -> Response:
    runtime = await runtimes.get(caller.tenant, runtime_id)
    agent_spec = runtime.agent(agent)
    return json_response(
        {"agent": agent, "text": agent_spec.system_prompt, "cacheKey": runtime.prompt_key(agent)}
    )


@router.get(
    "/runtimes/{runtime_id}/agents/{agent}/tools",
    summary="An agent's tools, each with the rule in force",
    response_model=views.AgentToolList,
)
async def list_agent_tools(
    request: Request,
    runtime_id: RuntimeId,
    agent: AgentName,
    caller: Annotated[Caller, require_scope("read")],
    runtimes: Registered,
) -> Response:
    runtime = await runtimes.get(caller.tenant, runtime_id)
    agent_spec = runtime.agent(agent)
    async with begin(request, caller) as op:
        floor = await load_floor(op.tx)
    tools: list[dict[str, Any]] = [
        {
            "name": t.name,
            "description": t.description,
            "inputSchema": t.input_schema,
            "transport": "builtin",
            "toolkit": t.toolkit,
        }
        for t in builtin_tools(runtime.spec, agent_spec)
    ]
    for name in agent_spec.tools:
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
        if has_variables(agent_spec):
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
    runtime_id: RuntimeId,
    op: Annotated[Operation, operation("runtimes:write")],
    runtimes: Registered,
    signing: Signing,
) -> Response:
    name = (await runtimes.read(op.tx, runtime_id)).name
    return await op.respond(
        {"runtimeName": name, "signingSecret": await signing.rotate(op.tx, name)},
        object_id=runtime_id,
        secret=True,
    )


async def _assembled(
    request: Request, spec: dict[str, Any], tenant: str | None = None
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the wire form of the assembled spec, and its literal secrets. This runs in a thread because it takes time; a
    large spec is assembled in the process that keeps it."""
    environment = runtimes_of(request).environment
    process: JsonProcess | None = getattr(request.state, "spec_process", None)
    if process is None:
        wire, literals = await asyncio.to_thread(assemble_spec, spec, environment, tenant)
    else:
        wire, literals = await process.run(
            assemble_large_spec,
            environment.egress.allow_hosts,
            environment.entry_points,
            dict(environment.provider_envs),
            tenant,
        )
        await process.end()
    return await offload(loads, wire), literals


def _with_spec(record: RuntimeRecord) -> dict[str, Any]:
    return to_wire(views.RuntimeView, record, spec=record.wire)
