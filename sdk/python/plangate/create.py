"""Opening a runtime: everything that can be checked is, before anything is started or sent."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal
from urllib.parse import urlsplit

from plangate.authoring.arguments import describe_type
from plangate.authoring.dispatchers import ActionDispatcher
from plangate.authoring.predicates import (
    PredicateFunction,
    check_functions,
    parse_predicates,
    predicate_functions,
    predicates_to_wire,
)
from plangate.authoring.runtimes import DefinedRuntime, define_tenant, local_tools, tool_predicates
from plangate.cell_urls import parse_cell_urls
from plangate.context import check_services
from plangate.data_environment import parse_data_environment
from plangate.event_types import EVENT_TYPES
from plangate.runtime import Runtime
from plangate.session import EventHook, PreparedRuntime, RegisteredName
from plangate.spec.assembly import assemble
from plangate.spec.base import did_you_mean
from plangate.spec.models import DEFAULT_SPEC_NAME, ReferenceSpec, RuntimeSpec, TenantSpec, ToolSpec
from plangate.workspace.directory import DirectoryWorkspace


def create_runtime(
    spec: DefinedRuntime | RuntimeSpec | Mapping[str, Any],
    *,
    url: str | None = None,
    api_key: str | None = None,
    cell_urls: Mapping[str, str] | None = None,
    services: Mapping[str, Any] | None = None,
    approval_predicates: Mapping[str, str | PredicateFunction] | None = None,
    action_dispatcher: ActionDispatcher | Callable[[Any, Any], Any] | None = None,
    workspace: DirectoryWorkspace | None = None,
    event_hooks: Mapping[str, EventHook] | None = None,
    testing: Mapping[str, str] | None = None,
    interpreter: Literal["scripted", "mock", "noop"] | None = None,
    serve: bool = True,
    data_environment: Mapping[str, Any] | None = None,
) -> Runtime:
    """Prepare a runtime. The first call that is awaited registers the spec; `async with` closes the runtime, too.

    While it is open, calls for the spec's local tools and its dispatcher are taken and run in this process.

    Args:
        spec: From `define_runtime`, or a RuntimeSpec. Or its wire form: then nothing runs here but predicates and a
            dispatcher.
        url: The service; without it PLANGATE_URL. Without that too a service is started on this machine, with
            its data in PLANGATE_DATA_DIR or the default place. It is shared by all runtimes of the process, stays
            when the last one is closed, for the next one to open at once, and ends with the process, however that
            ends.
        api_key: A key of the tenant; without it PLANGATE_API_KEY. A service that is started here has its own.
        cell_urls: The addresses of cells by name; without it PLANGATE_CELL_URLS, as
            `eu1=https://eu1.example.com,eu2=https://eu2.example.com`. If the service answers that the tenant is in one of
            these cells, the runtime sends its requests there. It sends its key only to `url` and these addresses.
        services: Objects that handlers find in their `ctx`, by name.
        approval_predicates: By id, CEL expressions, or functions `(args, ctx)`, sync or async, that say in
            this process whether a call of a tool needs an approval. `ctx` is a mapping with `tool`, `agent`,
            `threadId`, `queryId`, `resourceId` and `spentUsd`. The function returns a bool; when it raises,
            returns anything else or does not answer, an approval is required. In addition to the spec's; of
            one id, the one that is given here.
        action_dispatcher: The function `(actions, ctx)` that carries approved actions out, or an
            `ActionDispatcher`. A spec without a dispatcher gets one that runs here.
        workspace: From `serve_directory`: agents use this directory with the toolkit `workspace`. A spec without
            `workspace` gets `{"transport": "client"}`, and `readOnly` if the directory is.
        event_hooks: By type of event, or `"*"`, a function that is called with each event that is read
            through this runtime. What it raises is logged.
        testing: `{"mock_response": text}`: every agent answers this text, without a model.
        interpreter: Runs every agent without a model.
        serve: False starts queries and serves nothing: other processes run the tools, predicates and dispatcher.
        data_environment: `{"sources": {name: ...}, "entries": [...]}`: data sources and entries of the catalog, which
            are declared when the runtime is opened, by the requests `PUT /sources/{name}` and
            `POST /catalog/entries`. They need a key with `sources:admin` and `data:write`.

    Raises:
        TypeError: for an argument of the wrong kind.
        ValueError: for an argument that cannot be used, such as `testing` with another interpreter.
        SpecInvalid: (a ValueError) with everything that is wrong with the spec.
        ApiError, ServiceUnavailable, ServiceNotInstalled, ServiceNotStarted: when it is opened.

    Example:
        >>> helper = define_specialist("helper", "m-1", "You help.")
        >>> spec = define_runtime("acme", [helper])
        >>> async def ask():
        ...     async with create_runtime(spec, testing={"mock_response": "Hello."}) as runtime:
        ...         async for event in runtime.run_specialist("helper", "Hi"):
        ...             print(event["type"])
    """
    address = _address(url or os.environ.get("PLANGATE_URL") or None)
    key = _key(
        address, api_key or (os.environ.get("PLANGATE_API_KEY") if address is not None else None) or None
    )
    chosen, mock_response = _interpreter(interpreter, testing)
    prepared = _prepare(
        spec,
        approval_predicates,
        _dispatcher(action_dispatcher),
        chosen,
        mock_response,
        _workspace(workspace),
        serve=serve,
    )
    prepared = replace(prepared, data=parse_data_environment(data_environment))
    return Runtime(
        prepared,
        address,
        key,
        check_services(services),
        _hooks(event_hooks),
        serve=serve,
        cell_urls=parse_cell_urls(cell_urls),
    )


def connect(
    name: str = DEFAULT_SPEC_NAME,
    *,
    tenant: str | TenantSpec | Mapping[str, Any] | None = None,
    url: str | None = None,
    api_key: str | None = None,
    cell_urls: Mapping[str, str] | None = None,
    event_hooks: Mapping[str, EventHook] | None = None,
) -> Runtime:
    """Open a runtime that is registered, by its name, to start queries on it. It serves no tools.

    The newest version is used that is not retired, as of when it is opened.

    Args:
        name: The name that it was registered with.
        tenant: The tenant's id, or what `define_tenant` returns. None is the tenant of the key.
        url, api_key, cell_urls, event_hooks: As for `create_runtime`.

    Raises:
        TypeError: for an argument of the wrong kind.
        ValueError: for an argument that cannot be used.
        NotFound: when it is opened, if no runtime has the name.
        ApiError, ServiceUnavailable, ServiceNotInstalled, ServiceNotStarted: when it is opened.

    Example:
        >>> async def ask():
        ...     async with connect("orders") as runtime:
        ...         return [event["type"] async for event in runtime.query("Where is my bag?", "customer-17")]
    """
    if not isinstance(name, str) or not name:
        raise TypeError(f"name is the name of a registered runtime, not {describe_type(name)}")
    address = _address(url or os.environ.get("PLANGATE_URL") or None)
    key = _key(
        address, api_key or (os.environ.get("PLANGATE_API_KEY") if address is not None else None) or None
    )
    owner = None if tenant is None else define_tenant(tenant).resource_id
    prepared = RegisteredName(name, owner)
    cells = parse_cell_urls(cell_urls)
    return Runtime(prepared, address, key, {}, _hooks(event_hooks), serve=False, cell_urls=cells)


def _address(url: Any) -> str | None:
    if url is None:
        return None
    if not isinstance(url, str) or not _is_address(url):
        raise ValueError(f"url is an address such as http://127.0.0.1:8700, not {url!r}")
    return url


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of a port that is no number
        return False


def _key(address: str | None, value: Any) -> str | None:
    """Return the key as a header takes it, without the line end that it has in a file."""
    if value is None:
        if address is None:
            return None
        raise ValueError(
            f"a key is needed for {address}: pass api_key or set PLANGATE_API_KEY (`plangate serve` on this "
            "machine prints in which file its key is)"
        )
    if not isinstance(value, str):
        raise TypeError(f"api_key is the text of a key, not {describe_type(value)}")
    key = value.strip()
    if not key.isascii() or not key.isprintable():
        raise ValueError("api_key is not a key: keys begin with 'plg_' and have letters and digits only")
    return key


def _interpreter(interpreter: str | None, testing: Any) -> tuple[str | None, str | None]:
    if testing is None:
        return interpreter, None
    if not isinstance(testing, Mapping):
        raise TypeError(f'testing is {{"mock_response": text}}, not a {type(testing).__name__}')
    if set(testing) != {"mock_response"} or not isinstance(testing["mock_response"], str):
        raise ValueError('testing is {"mock_response": text}, with this one key and a string')
    if interpreter not in (None, "mock"):
        raise ValueError(f"testing answers with a mock; leave interpreter={interpreter!r} out")
    return "mock", testing["mock_response"]


def _dispatcher(value: Any) -> ActionDispatcher | None:
    if value is None or isinstance(value, ActionDispatcher):
        return value
    return ActionDispatcher(value)


def _workspace(value: Any) -> DirectoryWorkspace | None:
    if value is None or isinstance(value, DirectoryWorkspace):
        return value
    raise TypeError(f"workspace must be the return value of serve_directory, not {describe_type(value)}")


def _workspace_spec(
    wire: Mapping[str, Any], workspace: DirectoryWorkspace | None
) -> Mapping[str, Any] | None:
    """Return the field of the spec for a workspace that is served here, if the spec has none."""
    if workspace is None or wire.get("workspace"):
        return None
    return {"transport": "client", **({"readOnly": True} if workspace.read_only else {})}


def _hooks(hooks_by_type: Mapping[str, EventHook] | None) -> dict[str, EventHook]:
    if hooks_by_type is None:
        return {}
    if not isinstance(hooks_by_type, Mapping):
        raise TypeError('event_hooks is a mapping of types of event, or "*", to functions')
    for kind, hook in hooks_by_type.items():
        if kind != "*" and kind not in EVENT_TYPES:
            raise ValueError(f"event_hooks: unknown event type {kind!r}{did_you_mean(kind, EVENT_TYPES)}")
        if not callable(hook):
            raise TypeError(f"event_hooks: the hook for {kind!r} is not a function")
    return dict(hooks_by_type)


def _prepare(
    spec: Any,
    predicates: Mapping[str, Any] | None,
    dispatcher: ActionDispatcher | None,
    interpreter: str | None,
    mock_response: str | None,
    workspace: DirectoryWorkspace | None,
    *,
    serve: bool,
) -> PreparedRuntime:
    predicates_by_name = parse_predicates(predicates)
    if isinstance(spec, DefinedRuntime):
        _check_mock_response(spec.wire.get("interpreter"), mock_response)
        spec_dispatcher = None if spec.dispatcher else spec.wire.get("actionDispatcher")
        complete = spec.complete(
            approval_predicates=predicates_by_name,
            action_dispatcher=_resolve_dispatcher(spec_dispatcher, dispatcher),
            interpreter=interpreter,
            mock_response=mock_response,
            workspace=_workspace_spec(spec.wire, workspace),
        )
        if serve:
            check_functions(complete.wire, complete.predicates)
        own = complete.dispatcher or dispatcher
        return PreparedRuntime(
            complete.wire,
            complete.local_tools,
            complete.reference_kinds,
            complete.predicates,
            own,
            complete.dispatchers,
            workspace,
        )
    if not isinstance(spec, RuntimeSpec | Mapping):
        raise TypeError(f"spec is what define_runtime returns, not a {type(spec).__name__}")
    wire = assemble(spec, check_predicates=False).wire
    _check_mock_response(wire.get("interpreter"), mock_response)
    if (late := _resolve_dispatcher(wire.get("actionDispatcher"), dispatcher)) is not None:
        wire["actionDispatcher"] = {"kind": "client", "replay": late.replay}
    tools, references = _bound_objects(spec)
    predicates_by_name = {**tool_predicates(tools), **predicates_by_name}
    if predicates_by_name:
        wire["approvalPredicates"] = {
            **wire.get("approvalPredicates", {}),
            **predicates_to_wire(predicates_by_name),
        }
    chosen = {
        "interpreter": interpreter,
        "mockResponse": mock_response,
        "workspace": _workspace_spec(wire, workspace),
    }
    wire |= {key: value for key, value in chosen.items() if value is not None}
    wire = assemble(wire).wire
    functions = predicate_functions(predicates_by_name)
    if serve:
        check_functions(wire, functions)
    return PreparedRuntime(wire, local_tools(tools), references, functions, dispatcher, {}, workspace)


def _bound_objects(spec: RuntimeSpec | Mapping[str, Any]) -> tuple[list[ToolSpec], dict[str, ReferenceSpec]]:
    """Return the tools and kinds of reference of a spec, which keep their functions where they are objects."""
    if not isinstance(spec, RuntimeSpec):
        return [], {}
    tools = [*spec.tools, *(tool for agent in spec.agents for tool in agent.bound_tools)]
    references = [
        *spec.references,
        *(agent_reference for agent in spec.agents for agent_reference in agent.references),
    ]
    return tools, {reference.name: reference for reference in references}


def _check_mock_response(interpreter: str | None, mock_response: str | None) -> None:
    if mock_response is not None and interpreter not in (None, "mock"):
        raise ValueError(f"testing answers with a mock, but the spec's interpreter is {interpreter!r}")


def _resolve_dispatcher(
    spec_dispatcher: Mapping[str, Any] | None, dispatcher: ActionDispatcher | None
) -> ActionDispatcher | None:
    """Return the dispatcher to register. A dispatcher in the spec wins; one of kind `client` runs in this process."""
    if spec_dispatcher is None or dispatcher is None:
        return dispatcher
    if spec_dispatcher["kind"] != "client":
        raise ValueError(
            f"the spec's actionDispatcher is of kind {spec_dispatcher['kind']!r}, so no action would reach "
            "action_dispatcher: leave one of them out"
        )
    return None
