"""The OpenAPI document: what FastAPI finds, and what every operation has in common with others.

What a route alone knows stands at the route: its parameters, its body, its successful answers. What follows from
the habits of the API is added here, once: problems, scopes, the headers of requests and answers.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Iterator
from typing import Any

from fastapi import FastAPI, Response
from fastapi.openapi.utils import get_openapi
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from app.api.errors import PROBLEM_MEDIA_TYPE as PROBLEM_TYPE
from app.api.errors import STATUS_BY_ERROR, problem_slugs
from app.api.examples import add_example, load_examples
from app.base.errors import MAX_LISTED_ERRORS
from app.base.json import strict_json
from app.tenancy.http import OPERATOR_SCOPE
from app.tenancy.idempotency import MAX_KEY_CHARS

DESCRIPTION = """\
Typed plans, bound approvals, durable runs.

Errors are problem details (RFC 9457) whose `type` is a stable slug. Lists come newest first, in pages with an opaque
cursor. A POST with an `Idempotency-Key` takes effect once, and its response is repeated for 24 hours. Unknown fields
in a body are rejected; responses may gain fields.

Programs authenticate with an API key. Pages of the service may use the session of a browser instead: its cookie takes
the place of the key, and writes then need the header `Plangate-Request: 1`."""

TAGS = (
    ("runtimes", "runtime", "Registered systems of agents: versions that never change."),
    ("queries", "agents", "Work for the agents of a runtime, and the threads it happens in."),
    ("client tools", "tools", "Calls that processes of the user claim and answer."),
    ("plans", "plans", "Typed containers of the actions that agents intend to take."),
    ("approvals", "approvals", "What waits for a person, and the only place where anything is approved."),
    ("references", "references", "Values that stay outside of every prompt."),
    ("state", "variables", "What agents wrote to the state of a thread."),
    ("memory", "memory", "What a runtime remembers beyond a thread."),
    ("data", None, "Sources of data, and statements that run on them."),
    ("files", "artifacts", "The workspace of a thread: files that its agents share, with their versions."),
    ("artifacts", "artifacts", "What agents and hosts published: records that never change."),
    ("events", "events", "What happened, as pages and as streams."),
    ("work", "work", "What was done, what it used and what that cost."),
    ("keys and secrets", None, "Who may call, and what runtimes may use."),
    (
        "operations",
        None,
        "Whether the service runs and can work, and what the operator of an installation sees.",
    ),
)
"""The tags, each with its guide, in the order of the guides."""

SERVERS = (
    {"url": "http://127.0.0.1:8700", "description": "`plangate serve` on this machine."},
    {"url": "/", "description": "The service that this document came from."},
)

PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "instance"],
    "properties": {
        "type": {
            "type": "string",
            "description": "A stable slug; `/guides/problems` has a section about each. Later versions may add slugs.",
        },
        "title": {"type": "string", "description": "The kind of problem, for people."},
        "status": {"type": "integer", "description": "The HTTP status."},
        "detail": {"type": "string", "description": "What happened and what to do."},
        "instance": {"type": "string", "description": "The path that was asked for."},
        "errors": {
            "type": "array",
            "maxItems": MAX_LISTED_ERRORS,
            "description": "What is wrong: the first errors.",
            "items": {
                "type": "object",
                "required": ["pointer", "message"],
                "properties": {
                    "pointer": {
                        "type": "string",
                        "description": "A JSON pointer into the body, or `query:limit` and the like.",
                    },
                    "message": {"type": "string"},
                },
            },
        },
        "hasMoreErrors": {
            "type": "boolean",
            "description": "With `errors`: whether there are more than it lists.",
        },
        "cell": {
            "type": "string",
            "description": "With the type `wrong_cell`: the name of the cell to send the request to.",
        },
    },
    "description": "What went wrong (RFC 9457). Some kinds carry more, such as the `approval` that was decided already.",
}

WITH_A_BODY = ("post", "put")

# Beyond what follows from an operation's shape (`problems_of`): what else it can answer.
MORE_PROBLEMS: dict[str, tuple[int, ...]] = {
    "registerRuntime": (404,),  # the spec is another tenant's
    "submitQuery": (404,),  # runtime, thread
    "streamNewQuery": (404,),
    "listQueryEvents": (409,),  # the cursor is from before a restore
    "streamQuery": (409,),
    "listEvents": (409,),
    "streamEvents": (409,),
    "decideApprovals": (404,),
    "storePlan": (404, 410),  # runtime, thread; a reference it names
    "deleteThread": (409,),  # a query lives
    "readApprovalSubject": (410,),  # its thread was deleted
    "readApprovalValue": (410,),
    "postApprovalComment": (410,),
    "readRevisionChanges": (413,),  # the revisions are too large to compare
    "executePlan": (410,),  # a copy's references
    "createReference": (404,),  # runtime
    "readReference": (410,),
    "readReferenceGlimpse": (410,),
    "claimToolCall": (404, 410),  # the references that an action carries
    "writeFile": (409, 412),  # the workspace is full; If-Match
    "copyFile": (409,),  # nobody has the call
    "deleteFile": (409, 412),
    "uploadArtifact": (409, 412),
    "listFiles": (409,),  # the files are on a machine of the user
    "readFile": (409, 412, 416),  # If-Match; Range
    "readArtifactContent": (412, 416),
    "publishArtifact": (404,),  # thread, path, work
    "startSession": (401, 403, 421, 422, 429, 503),
    "endSession": (409,),  # a key and no session
    "putSource": (409,),  # the operator declared it
    "deleteSource": (409,),
    "putCatalogEntry": (409,),  # the entry has another kind
    "checkReadiness": (422, 503),
}

RETRY_AFTER = {
    "Retry-After": {
        "description": "Seconds to wait.",
        "required": True,
        "schema": {"type": "integer", "minimum": 1},
    }
}
HEADERS_OF_PROBLEM: dict[int, dict[str, Any]] = {
    401: {"WWW-Authenticate": {"required": True, "schema": {"type": "string"}}},
    409: {
        "Retry-After": {
            "description": "Seconds to wait, where the same request is in progress.",
            "schema": {"type": "integer", "minimum": 1},
        }
    },
    421: {
        "Plangate-Cell": {
            "description": "The name of the cell, as in `cell`, for load balancers.",
            "required": True,
            "schema": {"type": "string"},
        }
    },
    429: RETRY_AFTER,
    503: RETRY_AFTER,
}
LOCATION = {
    "Location": {"description": "The path of what was made.", "required": True, "schema": {"type": "string"}}
}

HEADER_PARAMETERS: dict[str, dict[str, Any]] = {
    "Plangate-Tenant": {
        "description": "The tenant to work in: with the operator's key any, else the key's own.",
        "schema": {"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]{0,62}$"},
    },
    "Plangate-Principal": {
        "description": "The person on whose behalf the call is made; needs a key with the scope `act-as`.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 200},
    },
    "Idempotency-Key": {
        "description": "The same key with the same body takes effect once and gets the first answer again for 24 hours; "
        "with another body it is a 409.",
        "schema": {"type": "string", "minLength": 1, "maxLength": MAX_KEY_CHARS},
    },
    "If-Match": {
        "description": "ETags: the file must be there and have one of them; else 412, and nothing is done.",
        "schema": {"type": "string"},
    },
    "If-None-Match": {
        "description": "ETags that the file may not have, or *: it may not be there.",
        "schema": {"type": "string"},
    },
    "Range": {"description": "One part of the body, such as bytes=100-199.", "schema": {"type": "string"}},
    "If-Range": {
        "description": "The ETag of the body that `Range` is about; if it has changed, the whole body is returned.",
        "schema": {"type": "string"},
    },
    "Last-Event-ID": {
        "description": "The cursor of the last event seen, as `after`; it wins over `after`.",
        "schema": {"type": "string"},
    },
}

PARAMETERS: dict[str, str] = {
    "thread_id": "The id of the thread.",
    "plan_id": "The id of the plan.",
    "approval_id": "The id of the approval.",
    "query_id": "The id of the query.",
    "work_id": "The id of the work record, which is the id of the call.",
    "artifact_id": "The id of the artifact.",
    "runtime_id": "The id of the runtime.",
    "grant_id": "The id of the grant.",
    "key_id": "The id of the key.",
    "readWorkRecord.work_id": "The id of the work record.",
    "id": "The id of the reference.",
    "deleteCatalogEntry.id": "The id of the entry.",
    "readCatalogEntry.id": "The id of the entry.",
    "putCatalogEntry.id": "The id of the entry.",
    "name": "The name of the source.",
    "deleteSecret.name": "The name of the secret.",
    "putSecret.name": "The name of the secret.",
    "uploadArtifact.name": "The name of the file within the artifact.",
    "listRuntimes.name": "Only versions of the runtime with this name.",
    "kind": "The kind of the reference.",
    "listApprovals.kind": "Only approvals of plans, or of tool calls.",
    "uploadArtifact.kind": "What kind of artifact it is.",
    "listCatalogEntries.kind": "Only entries of this kind.",
    "searchCatalog.kind": "Only entries of this kind.",
    "listReferences.kind": "Only references of this kind.",
    "listWorkRecords.kind": "Only work records of this kind.",
    "agent": "Only what this agent did.",
    "readAgentPrompt.agent": "The name of the agent.",
    "listAgentTools.agent": "The name of the agent.",
    "listThreadMessages.agent": "Only the messages of this agent.",
    "listEvents.threadId": "Only events of this thread.",
    "index": "The number of the action in its plan, from 0.",
    "revision": "The number of the revision, from 1.",
    "status": "Only what has this status.",
    "queryId": "Only what belongs to this query.",
    "threadId": "Only what belongs to this thread.",
    "runtimeId": "Only what belongs to this runtime.",
    "workId": "Only what this work record made.",
    "parentWorkId": "Only what work below this record made.",
    "callId": "Only what this call made.",
    "planId": "Only what this plan made.",
    "specName": "Only plans of this spec.",
    "tool": "Only grants for this tool.",
    "channel": "The channel of the artifact.",
    "listArtifacts.channel": "Only artifacts of this channel.",
    "tag": "Only what has this tag.",
    "source": "Only entries of this source.",
    "query": "The words to search for.",
    "limit": "How many entries at most.",
    "waitMs": "How long to wait for the end of the query, in milliseconds.",
    "version": "The version of the file; unset, the newest.",
    "uploadArtifact.threadId": "The thread that the artifact belongs to.",
    "uploadArtifact.workId": "A call that the caller is answering: the artifact then belongs to the agent that made the call.",
    "title": "A title for people.",
    "summary": "What is in it, in a sentence or two.",
    "replaces": "The id of the artifact that this one replaces.",
    "actionIndex": "The number of the action, from 0, that the artifact comes from.",
}
"""Descriptions of parameters whose route has none: by operation id and name, or by name."""

CONDITIONS = ("If-Match", "If-None-Match")
MORE_HEADERS: dict[str, tuple[str, ...]] = {
    "readFile": (*CONDITIONS, "Range", "If-Range"),
    "readArtifactContent": (*CONDITIONS, "Range", "If-Range"),
    "writeFile": CONDITIONS,
    "deleteFile": CONDITIONS,
    "uploadArtifact": (*CONDITIONS, "Idempotency-Key"),
}

DONE = {"200": "Done.", "201": "Made.", "202": "On record; the work follows."}

# Bodies that the handlers take as plain objects, because the library reads them.
INTEGER_BOUNDS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}

BODIES = {"registerRuntime": "RuntimeSpec", "validateRuntime": "RuntimeSpec"}


def install(api: FastAPI) -> None:
    def document() -> dict[str, Any]:
        if api.openapi_schema is None:
            api.openapi_schema = describe(api)
        return api.openapi_schema

    api.openapi = document  # type: ignore[method-assign]
    api.router.routes.insert(0, Route("/openapi.json", _Download(document), include_in_schema=False))


class _Download:
    """The route of the API document. Building the document takes 0.4 s, so it is built once, in a thread."""

    def __init__(self, document: Callable[[], dict[str, Any]]) -> None:
        self._document = document
        self._text: bytes | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._text is None:
            self._text = await asyncio.to_thread(lambda: strict_json.dumps(self._document()))
        await Response(self._text, media_type="application/json")(scope, receive, send)


def describe(api: FastAPI) -> dict[str, Any]:
    """Return the whole document."""
    document: dict[str, Any] = get_openapi(
        title=api.title,
        version=api.version,
        description=DESCRIPTION,
        servers=list(SERVERS),
        routes=api.routes,
    )
    document["tags"] = [_tag(*tag) for tag in TAGS]
    components = document["components"]
    for name in ("HTTPValidationError", "ValidationError"):
        components["schemas"].pop(name, None)
    _tidy(document)
    _drop_generated_titles(components["schemas"], names=True)
    _drop_generated_titles(document["paths"], names=True)
    components["schemas"]["Problem"] = copy.deepcopy(PROBLEM)
    components["schemas"]["Problem"]["properties"]["type"]["enum"] = problem_slugs()
    components["responses"] = {str(status): _problem(status) for status in sorted(STATUS_BY_ERROR.values())}
    components["parameters"] = {
        name: {"name": name, "in": "header", "required": False, **rest}
        for name, rest in HEADER_PARAMETERS.items()
    }
    examples = load_examples()
    for path, method, operation in operations(document):
        _complete(path, method, operation)
        # A test requires one of each; `make examples` needs the document before there are any.
        if operation["operationId"] in examples:
            add_example(operation, examples[operation["operationId"]])
    return document


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def scope_of(operation: dict[str, Any]) -> str | None:
    """Return the scope that a key needs for the operation, or None if any key will do or it needs none. OPERATOR_SCOPE
    stands for the operator's key."""
    scopes: list[str] = [s for need in operation.get("security", ()) for s in next(iter(need.values()))]
    return scopes[0] if scopes else None


def needs_key(operation: dict[str, Any]) -> bool:
    """Return whether the operation needs a key or a session."""
    return bool(operation.get("security"))


def problems_of(path: str, method: str, operation: dict[str, Any]) -> list[int]:
    """Return the statuses of the problems that an operation can return."""
    statuses = set(MORE_PROBLEMS.get(operation["operationId"], ()))
    if needs_key(operation):
        statuses |= {401, 403, 421, 422, 429, 503}  # 422: also for the headers that everything takes
    if method in WITH_A_BODY:
        statuses |= {400, 413, 415}
    if method == "post":
        statuses.add(409)  # the Idempotency-Key
    if "{" in path:
        statuses.add(404)
    if {"cursor", "after"} & {p.get("name") for p in operation.get("parameters", ())}:
        statuses.add(400)
    return sorted(statuses)


def _complete(path: str, method: str, operation: dict[str, Any]) -> None:
    answers = operation["responses"]
    answers.pop("422", None)
    if {"201", "202"} & answers.keys():
        for answer in answers.values():
            answer["headers"] = LOCATION
    for status, answer in answers.items():
        if answer["description"] == "Successful Response":
            answer["description"] = DONE[status]
        for content in answer["content"].values():
            if "$ref" in content["schema"]:  # FastAPI calls the messages of a stream strings, too
                content["schema"].pop("type", None)
    for status in problems_of(path, method, operation):
        answers[str(status)] = {"$ref": f"#/components/responses/{status}"}
    answers["default"] = {"description": "Any other problem.", "content": _problem_content()}
    for parameter in operation.get("parameters", ()):
        name = parameter["name"]
        described = PARAMETERS.get(f"{operation['operationId']}.{name}", PARAMETERS.get(name))
        if described is not None:
            parameter.setdefault("description", described)
    scope = scope_of(operation)
    if scope == OPERATOR_SCOPE:
        operation["x-plangate-operator"] = True
        other = "the token of `PLANGATE_METRICS_TOKEN`" if path == "/metrics" else "a session of the operator"
        _require(operation, f"Needs the operator's key or {other}.")
    elif scope is not None:
        operation["x-plangate-scope"] = scope
        _require(operation, f"Needs a key with the scope `{scope}`.")
    if needs_key(operation) and scope != OPERATOR_SCOPE:
        _take_headers(method, operation)
    elif method == "post":
        operation.setdefault("parameters", []).append({"$ref": "#/components/parameters/Idempotency-Key"})
    if operation["operationId"] in BODIES:
        reference = f"#/components/schemas/{BODIES[operation['operationId']]}"
        operation["requestBody"]["content"]["application/json"]["schema"] = {"$ref": reference}


def _require(operation: dict[str, Any], requirement: str) -> None:
    """Begin the description with what a caller needs."""
    more = operation.get("description", "")
    operation["description"] = requirement + (f"\n\n{more}" if more else "")


def _take_headers(method: str, operation: dict[str, Any]) -> None:
    parameters = operation.setdefault("parameters", [])
    names = ["Plangate-Tenant", "Plangate-Principal"]
    if method == "post":
        names.append("Idempotency-Key")
    if "after" in {p.get("name") for p in parameters}:
        names.append("Last-Event-ID")
    names += MORE_HEADERS.get(operation["operationId"], ())
    parameters += [{"$ref": f"#/components/parameters/{name}"} for name in names]


def _problem(status: int) -> dict[str, Any]:
    kind = next(kind for kind, number in STATUS_BY_ERROR.items() if number == status)
    answer: dict[str, Any] = {"description": kind.title + ".", "content": _problem_content()}
    if status in HEADERS_OF_PROBLEM:
        answer["headers"] = HEADERS_OF_PROBLEM[status]
    return answer


def _problem_content() -> dict[str, Any]:
    return {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}


def _tag(name: str, guide: str | None, text: str) -> dict[str, Any]:
    more = {} if guide is None else {"externalDocs": {"url": f"/guides/{guide}", "description": "The guide."}}
    return {"name": name, "description": text, **more}


def _tidy(node: Any) -> None:
    """Write schemas as generators understand them: bounds of integers are integers (FastAPI writes floats), and a
    union or a reference has no default, which generators do not know the type of."""
    if isinstance(node, list):
        for item in node:
            _tidy(item)
    elif isinstance(node, dict):
        if node.get("type") == "integer":
            for bound in INTEGER_BOUNDS & node.keys():
                node[bound] = int(node[bound])
        if "default" in node and any(
            {"oneOf", "$ref"} & kind.keys() for kind in (node, *node.get("anyOf", ()))
        ):
            del node["default"]
        _drop_defaults(node)
        for item in node.values():
            _tidy(item)


def _drop_defaults(schema: dict[str, Any]) -> None:
    """Tell the defaults of optional fields in their descriptions alone: openapi-typescript requires every field that has
    a `default`, also in requests."""
    fields = schema.get("properties")
    if not isinstance(fields, dict) or not isinstance(schema.get("required", []), list):
        return
    for name in fields.keys() - set(schema.get("required", ())):
        field = fields[name]
        if isinstance(field, dict) and (default := field.pop("default", None)) not in (None, "", [], {}):
            description = field.get("description", "")
            field["description"] = f"{description} Default: `{strict_json.dumps(default).decode()}`.".strip()


def _drop_generated_titles(node: Any, *, names: bool = False) -> None:
    """Drop the titles that Pydantic derives from field names; only titles of models are informative."""
    if isinstance(node, list):
        for item in node:
            _drop_generated_titles(item)
    elif isinstance(node, dict):
        for key, item in list(node.items()):
            if key == "title" and isinstance(item, str) and not names and "properties" not in node:
                del node[key]
            else:
                _drop_generated_titles(item, names=key in ("properties", "$defs"))
