"""Bodies of plans: from what a planner writes to what is stored, approved and dispatched. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, assert_never

import orjson
from plangate.spec.action_schemas import META_FIELDS, REFERENCES, ActionMetas
from plangate.spec.models import PlanSpec, RuntimeSpec
from plangate.spec.plan_schemas import actions_schema, discriminator, resolve
from plangate.spec.tool_plans import TOOL_ALIAS, TOOL_FIELD
from plangate.spec.transports import Dispatcher, ToolDispatcher
from plangate.spec.variable_schemas import OUTPUT_METHOD, OUTPUT_PATH, fixed_output_path
from plangate.spec.variables import DAGGER, replace_variables

from app.base.errors import FieldError
from app.base.json.strict_json import canonical, dumps
from app.base.schema.checker import SchemaChecker
from app.base.schema.parts import PLACEHOLDER_MARK
from app.documents.glimpses import truncate_text
from app.tools.results import Answer, ToolError, ToolResult

META = (OUTPUT_PATH, OUTPUT_METHOD)
MAX_ACTIONS = 1_000
ACTION_SIZE_ESTIMATE_BYTES = 5 * 1024
_QUOTED_PLACEHOLDER = "\\u0000"
_IN_AN_ACTION = re.compile(r"/actions/\d+/(?!_output)")
MAX_ACTION_RESULT_BYTES = 64 * 1024  # in the row of an action; the record of the call has the whole result
MAX_BATCH_RESULT_BYTES = 16 * 1024 * 1024  # in all rows of a batch, which are written at once
MAX_SUMMARY_CHARS = 2_000  # of a result that is truncated


@dataclass(frozen=True, slots=True)
class Action:
    """A normalized action: its kind, its fields, the references that its dispatch hydrates and, in a plan with variables,
    the path of its result."""

    kind: str
    payload: dict[str, Any]
    references: tuple[tuple[str, str], ...]
    output_path: Any = None
    output_method: Any = None

    def wire(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "payload": self.payload,
            "references": [{"kind": k, "id": i} for k, i in self.references],
        }

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Action:
        references = tuple((r["kind"], r["id"]) for r in raw["references"])
        return cls(
            raw["kind"], dict(raw["payload"]), references, raw.get(OUTPUT_PATH), raw.get(OUTPUT_METHOD)
        )


def normalize(
    spec: PlanSpec,
    body: Any,
    schemas: SchemaChecker,
    *,
    variables: bool = False,
    prescribed: Callable[[str], str | None] = lambda kind: None,
) -> tuple[dict[str, Any], list[FieldError]]:
    """Return the stored form of a body and its errors (then the form is empty). Each flat action
    `{<discriminator>, ...fields, references?}` becomes `{"kind", "payload", "references"}`; every other
    top-level field is kept as the plan's context. With `variables`, an action may name the path of its
    result, and the values of variables are not checked yet. `prescribed` returns the path that results of
    a kind of action go to whatever the schema says."""
    if actions_schema(spec.schema_) is None:
        return {}, [
            FieldError(
                "/actions",
                f"the schema of plan {spec.name!r} has no top-level array `actions`, so nothing can be stored under "
                "it: add `actions` to its properties and register the runtime again",
            )
        ]
    if not isinstance(body, dict) or not isinstance(body.get("actions"), list):
        return {}, [FieldError("/actions", "the body must be an object with an array `actions`")]
    if len(body["actions"]) > MAX_ACTIONS:
        count = len(body["actions"])
        return {}, [
            FieldError(
                "/actions", f"a plan has {MAX_ACTIONS} actions at most; this has {count}: make several"
            )
        ]
    field, metas = discriminator(spec.schema_), ActionMetas.from_schema(spec.schema_)
    errors: list[FieldError] = []
    flat: list[Any] = []
    for n, action in enumerate(body["actions"]):
        if not isinstance(action, dict):
            flat.append(action)
            continue
        errors += [
            FieldError(f"/actions/{n}/{name}", f"{name} requires a plan with variables: true")
            for name in META
            if name in action and not variables
        ]
        reference_problems = reference_errors(action.get(REFERENCES, []), f"/actions/{n}/{REFERENCES}")
        errors += reference_problems
        flat_action = dict(action)
        if spec.tools and TOOL_FIELD not in flat_action and TOOL_ALIAS in flat_action:
            flat_action[TOOL_FIELD] = flat_action.pop(TOOL_ALIAS)
        if REFERENCES in flat_action and not reference_problems:
            flat_action[REFERENCES] = [{"kind": r["kind"], "id": r["id"]} for r in flat_action[REFERENCES]]
        if variables:
            kind = flat_action.get(field)
            path = metas.of(kind).output_path or (prescribed(kind) if isinstance(kind, str) else None)
            if path is not None and flat_action.setdefault(OUTPUT_PATH, path) != path:
                message = f"the results of this action go to {path}: write that path, or leave it out"
                errors.append(FieldError(f"/actions/{n}/{OUTPUT_PATH}", message))
        flat.append(flat_action)
    errors += _schema_errors(spec, {**body, "actions": flat}, metas, schemas, variables=variables)
    if errors:
        return {}, errors
    actions = []
    for n, action in enumerate(flat):
        kind = action.get(field)
        if not isinstance(kind, str):
            errors.append(FieldError(f"/actions/{n}/{field}", "must say the kind of the action as a string"))
            continue
        if variables and kind.startswith(DAGGER):
            errors.append(
                FieldError(f"/actions/{n}/{field}", "selects the kind of the action and cannot be a variable")
            )
            continue
        payload = {k: v for k, v in action.items() if k != field and k not in META_FIELDS}
        meta = {name: action[name] for name in META if name in action}
        actions.append({"kind": kind, "payload": payload, REFERENCES: action.get(REFERENCES, []), **meta})
    if errors:
        return {}, errors
    return {**body, "actions": actions}, []


@dataclass(frozen=True, slots=True)
class PlanDraft:
    """The stored form of a body: its canonical bytes, its actions, and the references that they name beside their fields."""

    data: bytes
    actions: list[Action]
    references: list[tuple[str, str]]

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> PlanDraft:
        """Create a draft from a normalized and validated body. Call it through `offload`."""
        actions = parse_actions(body)
        data = orjson.dumps(body, option=orjson.OPT_SORT_KEYS)
        return cls(data, actions, collect_references(actions))


def offload_size(data: bytes, actions: int) -> int:
    """Return the `size` to pass to `offload` for work on a plan: a thousand actions take half a second, however short they
    are."""
    return max(len(data), actions * ACTION_SIZE_ESTIMATE_BYTES)


def _schema_errors(
    spec: PlanSpec, body: dict[str, Any], metas: ActionMetas, schemas: SchemaChecker, *, variables: bool
) -> list[FieldError]:
    """Return the errors of a body, except for the values of its variables: those are checked before each
    action is sent."""
    schema = explained_schema(spec.schema_)
    field = discriminator(schema)
    bare = [_declared_fields(a, metas, field) if isinstance(a, dict) else a for a in body["actions"]]
    actions = bare
    if variables:
        actions = [_with_placeholders(a) if isinstance(a, dict) else a for a in bare]
    has_placeholders = actions != bare
    errors = schemas.errors(schema, {**body, "actions": actions}, placeholders=has_placeholders)
    return list(map(describe_placeholder_error, errors)) if has_placeholders else errors


def _declared_fields(action: Mapping[str, Any], metas: ActionMetas, field: str) -> dict[str, Any]:
    """Return a flat action without the meta fields that the schema of its kind does not declare."""
    declared = metas.of(action.get(field)).declared
    return {name: value for name, value in action.items() if name not in META_FIELDS or name in declared}


def _with_placeholders(action: Mapping[str, Any]) -> dict[str, Any]:
    """Return a flat action with placeholders for its variables. Paths of results stay: they are no values."""
    fields = {name: value for name, value in action.items() if name not in META_FIELDS}
    meta = {name: value for name, value in action.items() if name in META_FIELDS}
    return {**replace_variables(fields, _placeholder), **meta}


def _flat_action(
    raw: Mapping[str, Any], payload: Mapping[str, Any], metas: ActionMetas, field: str
) -> dict[str, Any]:
    """Return a stored action as its schema has it, with these fields."""
    meta = metas.of(raw["kind"])
    flat = {field: raw["kind"], **payload}
    if raw[REFERENCES] or REFERENCES in meta.required:
        flat[REFERENCES] = raw[REFERENCES]
    return flat | {name: raw[name] for name in META if name in raw}


def describe_placeholder_error(error: FieldError) -> FieldError:
    """Return the error with its placeholders removed and its literal daggers escaped, as in the body."""
    message = error.message
    if _IN_AN_ACTION.match(error.pointer):
        message = message.replace(f'"{DAGGER}', f'"{DAGGER}{DAGGER}')
    return FieldError(error.pointer, _without_placeholders(message))


def _without_placeholders(message: str) -> str:
    return message.replace(_QUOTED_PLACEHOLDER, "").replace(PLACEHOLDER_MARK, "")


def _placeholder(text: str) -> str:
    """Return what stands for a string that begins with a dagger while values are still to come: a
    placeholder, or the literal text."""
    return text[1:] if text.startswith(DAGGER, 1) else PLACEHOLDER_MARK + text


def compile_schema(spec: PlanSpec, schemas: SchemaChecker, *, variables: bool) -> None:
    """Compile what a plan of this kind is checked with. Call it through `offload`, while no transaction is open: a large
    schema takes a second or two. Raise InvalidSchema."""
    schema = explained_schema(spec.schema_)
    schemas.compile(schema)
    if variables:
        schemas.compile(schema, placeholders=True)


def explained_schema(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of a plan with a named discriminator for its kinds of action, if it names none:
    errors of an action are then those of its own kind."""
    actions, properties = actions_schema(schema), schema.get("properties")
    items = resolve(schema, actions.get("items")) if actions is not None else {}
    is_union = "oneOf" in items or "anyOf" in items
    if actions is None or not isinstance(properties, Mapping) or not is_union or "discriminator" in items:
        return schema
    with_discriminator = {**items, "discriminator": {"propertyName": discriminator(schema)}}
    return {**schema, "properties": {**properties, "actions": {**actions, "items": with_discriminator}}}


def action_errors(
    spec: PlanSpec, body: Mapping[str, Any], n: int, payload: dict[str, Any], schemas: SchemaChecker
) -> list[FieldError]:
    """Return the errors in the fields of action `n` after its variables were replaced; pointers lead into
    the fields. Errors without a place, because the value is too large to locate them, belong to the
    action too: everything else was checked."""
    schema = explained_schema(spec.schema_)
    field, metas = discriminator(schema), ActionMetas.from_schema(schema)
    flat = _declared_fields(_flat_action(body["actions"][n], payload, metas, field), metas, field)
    items = {"type": "array", "items": (actions_schema(schema) or {}).get("items", {})}  # of any length
    one_action = {**schema, "properties": {**schema.get("properties", {}), "actions": items}}
    prefix, errors = "/actions/0", schemas.errors(one_action, {**body, "actions": [flat]})
    if any(not error.pointer for error in errors):  # a rule may be about all actions together
        prefix, errors = f"/actions/{n}", resolved_errors(spec, body, {n: payload}, schemas)
    return [
        FieldError(f.pointer.removeprefix(prefix), f.message)
        for f in errors
        if not f.pointer or f"{f.pointer}/".startswith(f"{prefix}/")
    ]


def resolved_errors(
    spec: PlanSpec, body: Mapping[str, Any], filled: Mapping[int, dict[str, Any]], schemas: SchemaChecker
) -> list[FieldError]:
    """Return the errors of a body in which the variables of these actions were replaced, while all other
    values are still to come."""
    schema = explained_schema(spec.schema_)
    field, metas = discriminator(schema), ActionMetas.from_schema(schema)
    actions = []
    for n, raw in enumerate(body["actions"]):
        payload = filled[n] if n in filled else replace_variables(raw["payload"], _placeholder)
        actions.append(_declared_fields(_flat_action(raw, payload, metas, field), metas, field))
    has_placeholders = len(filled) < len(actions)
    errors = schemas.errors(schema, {**body, "actions": actions}, placeholders=has_placeholders)
    return [FieldError(f.pointer, _without_placeholders(f.message)) for f in errors]


def reference_errors(references: Any, pointer: str) -> list[FieldError]:
    if not isinstance(references, list):
        return [FieldError(pointer, "must be an array of {kind, id}")]
    return [
        FieldError(f"{pointer}/{n}", "must be {kind, id}")
        for n, r in enumerate(references)
        if not (isinstance(r, dict) and isinstance(r.get("kind"), str) and isinstance(r.get("id"), str))
    ]


def parse_actions(body: Mapping[str, Any]) -> list[Action]:
    return [Action.of(raw) for raw in body["actions"]]


def collect_references(actions: Sequence[Action]) -> list[tuple[str, str]]:
    """Return every reference that the actions name beside their fields, once, in order."""
    return list(dict.fromkeys(r for a in actions for r in a.references))


def idempotency_key(tenant: str, plan_id: str, revision: int, index: int | None) -> str:
    """Return a key that is the same for every attempt at an action of a revision, and different for
    anything else. Without an index it is the key of the whole batch."""
    part = "batch" if index is None else str(index)
    return hashlib.sha256(f"{tenant}/{plan_id}/{revision}/{part}".encode()).hexdigest()[:40]


@dataclass(frozen=True, slots=True)
class ResolvedDispatcher:
    """The dispatcher for one kind of action (`*` for all of them in one batch)."""

    kind: str
    dispatcher: Dispatcher
    digest: str


def resolve_dispatchers(
    spec: RuntimeSpec, plan: PlanSpec, kinds: Sequence[str], *, graph: bool = False
) -> tuple[dict[str, ResolvedDispatcher], list[str]]:
    """Return the dispatcher of each kind of action of a plan, and the kinds that have none. Tools and per-kind
    dispatchers take actions one at a time; a single dispatcher takes them as a batch, or those of a graph one at
    a time."""
    if plan.tools:
        return _tools_as_dispatchers(spec, plan, kinds)
    per_kind = spec.action_dispatchers
    if not per_kind:
        single = spec.action_dispatcher
        if single is None:
            return {}, sorted(set(kinds))
        if isinstance(single, ToolDispatcher):  # a tool takes one action at a time
            return {kind: _resolve_dispatcher(spec, kind, single) for kind in sorted(set(kinds))}, []
        whole = _resolve_dispatcher(spec, "*", single)
        return (dict.fromkeys(sorted(set(kinds)), whole) if graph else {"*": whole}), []
    resolved: dict[str, ResolvedDispatcher] = {}
    missing: list[str] = []
    for kind in sorted(set(kinds)):
        dispatcher = per_kind.get(kind) or spec.action_dispatcher
        if dispatcher is None:
            missing.append(kind)
        else:
            resolved[kind] = _resolve_dispatcher(spec, kind, dispatcher)
    return resolved, missing


def _tools_as_dispatchers(
    spec: RuntimeSpec, plan: PlanSpec, kinds: Sequence[str]
) -> tuple[dict[str, ResolvedDispatcher], list[str]]:
    tools = {tool.name: tool for tool in spec.tools if tool.name in plan.tools}
    kinds_of_tools = sorted(set(kinds))
    resolved = {
        kind: _resolve_dispatcher(spec, kind, ToolDispatcher(tool=kind, replay=tools[kind].replay_rule()))
        for kind in kinds_of_tools
        if kind in tools
    }
    return resolved, [kind for kind in kinds_of_tools if kind not in tools]


def is_tool_call(spec: RuntimeSpec, plan: PlanSpec, action: Action) -> bool:
    """Return whether a declared tool carries the action out. Then whatever it returns is the action's result."""
    resolved_by_kind, _ = resolve_dispatchers(spec, plan, [action.kind], graph=True)
    resolved = resolved_by_kind.get(action.kind)
    return resolved is not None and isinstance(resolved.dispatcher, ToolDispatcher)


def prescribed_paths(spec: RuntimeSpec, plan: PlanSpec) -> Callable[[str], str | None]:
    """Return a function from a kind of action to the path that the tool behind it prescribes for its results."""
    known: dict[str, str | None] = {}

    def path_of(kind: str) -> str | None:
        if kind not in known:
            resolved, _ = resolve_dispatchers(spec, plan, [kind], graph=True)
            by = resolved[kind].dispatcher if kind in resolved else None
            tools = {tool.name: tool for tool in spec.tools} if isinstance(by, ToolDispatcher) else {}
            tool = tools.get(by.tool) if isinstance(by, ToolDispatcher) else None
            known[kind] = fixed_output_path(tool.input_schema) if tool is not None else None
        return known[kind]

    return path_of


def _resolve_dispatcher(spec: RuntimeSpec, kind: str, dispatcher: Dispatcher) -> ResolvedDispatcher:
    """Resolve one dispatcher. The digest includes the runtime's name, so that a process of another runtime
    does not claim its actions."""
    definition = {"runtime": spec.name, "dispatcher": dispatcher.to_wire()}
    return ResolvedDispatcher(kind, dispatcher, hashlib.sha256(canonical(definition)).hexdigest())


def client_call_name(resolved: ResolvedDispatcher) -> str:
    """Return the name under which client processes claim the dispatch."""
    if isinstance(resolved.dispatcher, ToolDispatcher):
        return resolved.dispatcher.tool
    return "actions" if resolved.kind == "*" else f"actions.{resolved.kind}"


def dispatch_result(output: Any) -> tuple[dict[str, Any], str | None]:
    """Return what a dispatcher returned, and its errors: it must return nothing, or `{entitiesAffected: int
    >= 0, summary?: str, details?}`."""
    must = "the dispatcher must return None or an object {entitiesAffected, summary?, details?}"
    if output is None:
        return {}, None
    if not isinstance(output, dict):
        return {}, f"{must}; it returned {type(output).__name__}"
    affected = output.get("entitiesAffected")
    if not isinstance(affected, int) or isinstance(affected, bool) or affected < 0:
        return {}, f"entitiesAffected must be an integer of at least 0; {must}"
    if "summary" in output and not isinstance(output["summary"], str):
        return {}, f"summary must be a string; {must}"
    unknown = sorted(set(output) - {"entitiesAffected", "summary", "details"})
    if unknown:
        return {}, f"unknown field {unknown[0]!r}; {must}"
    return output, None


@dataclass(frozen=True, slots=True)
class ActionResult:
    """The outcome of actions, with the result or error that their rows store."""

    status: Literal["succeeded", "failed", "unknown", "skipped"]
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None

    @classmethod
    def failed(cls, code: str, message: str) -> ActionResult:
        return cls("failed", error={"code": code, "message": message})

    @classmethod
    def skipped(cls, message: str) -> ActionResult:
        return cls("skipped", error={"code": "skipped", "message": message})

    @classmethod
    def unknown(cls, message: str) -> ActionResult:
        """`message` is for the person who settles it: what is known."""
        return cls("unknown", error={"code": "outcome_unknown", "message": message})

    @classmethod
    def from_call(cls, result: ToolResult, *, by_tool: bool = False) -> ActionResult:
        """Return the result of the actions of a dispatch. `by_tool`: a declared tool carried the action out. Unless it
        reports as a dispatcher does, what it returned is the result."""
        if isinstance(result, Answer):
            report, error = dispatch_result(result.value)
            if error is None:
                return cls("succeeded", report)
            if by_tool:
                return cls("succeeded", {"details": result.value})
            return cls.failed("bad_dispatch_result", error)
        match result.status:
            case "failed":
                return cls.failed("dispatch_failed", result.message)
            case "unknown":
                message = "The process that claimed it did not post a result in time."
                return cls.unknown(result.message or message)
            case "withdrawn":
                return cls.failed("not_served", "Nobody took the dispatch in time; nothing was sent.")
            case _:
                assert_never(result.status)

    def tool_result(self) -> ToolResult:
        """Return what is written to the path of the action."""
        if self.error is None:
            return Answer((self.result or {}).get("details"))
        return ToolError(self.error["message"], self.error["code"])

    def dump(self, actions: int = 1) -> tuple[bytes | None, bytes | None]:
        """Return the result and the error, as each of `actions` rows stores them."""
        max_bytes = min(MAX_ACTION_RESULT_BYTES, MAX_BATCH_RESULT_BYTES // actions)
        result = None if self.result is None else _bytes_per_action(self.result, max_bytes)
        return result, None if self.error is None else dumps(self.error)


def _bytes_per_action(result: dict[str, Any], max_bytes: int) -> bytes:
    """Return the bytes to store per action when several actions share this result: a large one is kept by
    the call alone."""
    data = orjson.dumps(result)  # the strict parser accepted it
    if len(data) <= max_bytes:
        return data
    note = f"The result had {len(data)} bytes; the record of the call has it."
    stored_result = {"entitiesAffected": result.get("entitiesAffected", 0), "details": {"note": note}}
    if "summary" in result:
        stored_result["summary"] = truncate_text(result["summary"], MAX_SUMMARY_CHARS)
    return dumps(stored_result)


def flatten_payload(spec: PlanSpec, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored body in the form in which a planner writes it: the inverse of `normalize`."""
    field, metas = discriminator(spec.schema_), ActionMetas.from_schema(spec.schema_)
    return {**body, "actions": [_flat_action(raw, raw["payload"], metas, field) for raw in body["actions"]]}
