"""Kinds of plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, get_args

from plangate.authoring.arguments import parse_schema
from plangate.spec.models import PlanSpec, PlanStatus


def define_plan(
    name: str,
    schema: Any,
    display_aliases: Mapping[str, str] | Iterable[Any] = (),
    *,
    variables: bool = False,
) -> PlanSpec:
    """Declare a kind of plan.

    Args:
        name: Its name; planners store plans under it.
        schema: Anything that `normalize_schema` takes, with a top-level array `actions`; every other field
            is the plan's context. Without `actions`, no plan can be stored under it, and `storePlan` says so.
        display_aliases: What people read in place of a status: a mapping of status to alias, or a sequence
            of `{"status", "alias"}` or of pairs.
        variables: Whether its actions may have variables and output paths, which make it a graph, also where
            the planner has no toolkit `variables`, or a host stores it.

    Raises:
        TypeError: for a schema that is none.
        ValueError: for a status that plans do not have.

    Example:
        >>> define_plan("Refunds", {"actions": list[dict]}, {"draft": "Proposed"}).to_wire()["displayAliases"]
        [{'status': 'draft', 'alias': 'Proposed'}]
    """
    plain = parse_schema(schema, f"the schema of plan {name!r}")
    aliases = [_alias(name, alias) for alias in _items(display_aliases)]
    written = {"name": name, "schema": plain, "display_aliases": aliases, "variables": variables}
    return PlanSpec.model_validate({key: value for key, value in written.items() if value not in ([], False)})


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
