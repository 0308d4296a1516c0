"""The calls that the functions of a program serve: their names and exact definitions in a registered spec."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_json as compact_json

from plangate.authoring.arguments import Handler
from plangate.authoring.dispatchers import ActionDispatcher
from plangate.authoring.predicates import PredicateFunction
from plangate.authoring.tools import DefinedTool
from plangate.spec.file_toolkits import WORKSPACE_CALL
from plangate.spec.models import DEFAULT_SPEC_NAME
from plangate.spec.plan_schemas import action_kinds


@dataclass(frozen=True, slots=True)
class LocalHandler:
    """Calls of `name` under exactly this definition go to `handler`."""

    name: str
    digest: str
    handler: Handler


def local_handlers(
    wire: Mapping[str, Any],
    tools: Mapping[str, DefinedTool],
    predicates: Mapping[str, PredicateFunction],
    dispatcher: ActionDispatcher | None,
    dispatchers: Mapping[str, ActionDispatcher],
    workspace: Handler | None = None,
) -> list[LocalHandler]:
    """Return the handlers of this program for a registered spec. Digests are those of the registered spec."""
    digests = [
        LocalHandler(tool["name"], _definition_digest(tool), handler)
        for tool in wire.get("tools", ())
        if tool["name"] in tools and (handler := tools[tool["name"]].handler) is not None
    ]
    digests += [
        LocalHandler(
            f"predicates.{id_}", _digest({"runtime": _name(wire), "predicate": id_}), predicates[id_]
        )
        for id_, expression in wire.get("approvalPredicates", {}).items()
        if id_ in predicates and not isinstance(expression, str)
    ]
    if workspace is not None and wire.get("workspace") is not None:
        part = {"runtime": _name(wire), "workspace": wire["workspace"]}
        digests.append(LocalHandler(WORKSPACE_CALL, _digest(part), workspace))
    shared, by_kind = wire.get("actionDispatcher"), wire.get("actionDispatchers") or {}
    if not by_kind:
        return digests + _action_handlers(wire, "actions", shared, dispatcher)
    kinds = [action_kinds(plan["schema"]) for plan in wire["plans"] if not plan.get("tools")]
    for kind in sorted({kind for item in kinds for kind in item or ()} | by_kind.keys()):
        wire_dispatcher, own = (
            (by_kind[kind], dispatchers.get(kind)) if kind in by_kind else (shared, dispatcher)
        )
        digests += _action_handlers(wire, f"actions.{kind}", wire_dispatcher, own)
    return digests


def _action_handlers(
    wire: Mapping[str, Any],
    name: str,
    wire_dispatcher: Mapping[str, Any] | None,
    own: ActionDispatcher | None,
) -> list[LocalHandler]:
    if own is None or wire_dispatcher is None or wire_dispatcher["kind"] != "client":
        return []
    return [LocalHandler(name, _digest({"runtime": _name(wire), "dispatcher": wire_dispatcher}), own.handler)]


def _name(wire: Mapping[str, Any]) -> str:
    return wire.get("name") or DEFAULT_SPEC_NAME


def _definition_digest(tool: Mapping[str, Any]) -> str:
    return _digest(
        {
            "name": tool["name"],
            "description": tool.get("description") or "",
            "inputSchema": tool["inputSchema"],
            "outputSchema": tool.get("outputSchema"),
        }
    )


def _digest(value: Any) -> str:
    """Return the digest as the service computes it: SHA-256 of compact UTF-8 JSON with sorted object keys."""
    return hashlib.sha256(compact_json(_sort_keys(value))).hexdigest()


def _sort_keys(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _sort_keys(value[key]) for key in sorted(value)}
    return [_sort_keys(item) for item in value] if isinstance(value, list) else value
