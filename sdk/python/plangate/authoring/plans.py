"""Kinds of plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

from plangate.authoring.arguments import parse_list, parse_name, parse_schema
from plangate.spec.models import FactSpec, PlanSpec, PlanStatus, ToolSpec
from plangate.spec.plan_schemas import actions_schema
from plangate.spec.tool_plans import tool_plan, tool_problem


def define_plan(
    name: str,
    schema: Any = None,
    display_aliases: Mapping[str, str] | Iterable[Any] = (),
    *,
    tools: Sequence[str | ToolSpec] = (),
    variables: bool = False,
    glimpse: Mapping[str, str | Mapping[str, Any] | FactSpec] | None = None,
    action_keys: Mapping[str, Sequence[str]] | None = None,
) -> PlanSpec:
    """Declare a kind of plan.

    Args:
        name: Its name; planners store plans under it.
        schema: Anything that `normalize_schema` takes, with a top-level array `actions`; every other field
            is the plan's context. Without `actions`, no plan can be stored under it, and `storePlan` says so. With
            `tools` it has the context alone, and may be left out.
        display_aliases: What people read in place of a status: a mapping of status to alias, or a sequence
            of `{"status", "alias"}` or of pairs.
        tools: Tools from `define_tool`, or their names. Each action is then a call of one of them,
            `{"tool": name, ...arguments}`: the tool's schema describes it, the tool carries it out, and no dispatcher
            is declared. A tool's approval rule holds for the plan. If a tool's schema has `_outputPath`, `variables`
            is implied.
        variables: Whether its actions may have variables and output paths, which make it a graph, also where
            the planner has no toolkit `variables`, or a host stores it.
        glimpse: Up to six facts that approvals show, by name: a JMESPath expression over the stored body, or a FactSpec
            (or a mapping of its fields) with `expression`, `label`, `unit` and `kind`. The service computes them when
            the plan reaches its gate. `decimal_sum` adds decimal strings exactly.
        action_keys: The fields that identify an action, by its kind, such as `{"refund": ["order"]}`. Actions of two
            revisions with the same key are compared with each other.

    Raises:
        TypeError: for a schema that is none, or tools that are neither names nor from `define_tool`.
        ValueError: for neither `schema` nor `tools`, `actions` in a schema beside tools, a tool whose calls cannot be
            actions, or a status that plans do not have.

    Example:
        >>> define_plan("Refunds", {"actions": list[dict]}, {"draft": "Proposed"}).to_wire()["displayAliases"]
        [{'status': 'draft', 'alias': 'Proposed'}]
        >>> book = define_tool("book", {"room": str})
        >>> define_plan("trip", tools=[book]).schema_["properties"]["actions"]["items"]["oneOf"][0]["required"]
        ['tool', 'room']
        >>> total = {"expression": "decimal_sum(actions[].payload.amount)", "unit": "USD", "kind": "decimal"}
        >>> define_plan("Refunds", {"actions": list[dict]}, glimpse={"total": total}).glimpse["total"].unit
        'USD'
    """
    owner = f"plan {name!r}"
    listed = parse_list(owner, "tools", tools)
    names = [parse_name(owner, "tools", tool, ToolSpec) for tool in listed]
    if schema is None and not names:
        raise ValueError(f"{owner} has neither a schema nor tools: give one of them")
    plain = {} if schema is None else parse_schema(schema, f"the schema of {owner}")
    if actions_schema(plain) is not None and names:
        raise ValueError(f"{owner} has tools, from which its actions come: remove 'actions' from its schema")
    bound = {tool.name: tool for tool in listed if isinstance(tool, ToolSpec)}
    for tool in bound.values():
        if (why := tool_problem(tool)) is not None:
            raise ValueError(f"the tool {tool.name!r} cannot be an action of {owner}: {why}")
    aliases = [_alias(name, alias) for alias in _items(display_aliases)]
    fields = {
        "name": name,
        "tools": listed,
        "display_aliases": aliases,
        "variables": variables,
        "glimpse": dict(glimpse or {}),
        "action_keys": {kind: tuple(fields) for kind, fields in (action_keys or {}).items()},
    }
    set_fields = {key: value for key, value in fields.items() if value not in ([], (), {}, False)}
    plan = PlanSpec.model_validate({"schema": plain, **set_fields})
    return tool_plan(plan, bound) if len(bound) == len(names) else plan


def _items(aliases: Mapping[str, str] | Iterable[Any]) -> Iterable[Any]:
    return aliases.items() if isinstance(aliases, Mapping) else aliases


def _alias(plan: str, alias: Any) -> Any:
    if isinstance(alias, tuple | list) and len(alias) == 2:
        alias = {"status": alias[0], "alias": alias[1]}
    status = alias.get("status") if isinstance(alias, Mapping) else getattr(alias, "status", None)
    if status not in get_args(PlanStatus):
        raise ValueError(
            f"plan {plan!r} has an alias for {status!r}, which is not a status of plans; "
            f"expected one of {', '.join(get_args(PlanStatus))}"
        )
    return alias
