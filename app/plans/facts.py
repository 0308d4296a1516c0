"""The facts of a plan: computed from its body as it reaches its gate, and part of what is approved. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from jmespath.exceptions import JMESPathError
from plangate.spec.models import FactSpec
from plangate.spec.variables import MISSING, Expression, VariablePath, parse, replace_variables, resolve_path
from plangate.statuses import FactKind, FactStatus

from app.base import jmespath
from app.base.jmespath import UNKNOWN, UnknownValueRead
from app.base.json import strict_json
from app.plans.graph import REF, PlanGraph
from app.references.models import Handle
from app.variables.values import document_root, is_text

MAX_FACT_STEPS: Final = 250_000  # of all facts of a plan: about a quarter of a second
MAX_FACT_BYTES: Final = 1024

Described = Mapping[Handle, Mapping[str, Any]]
"""The handle, glimpse and size of each reference of a plan."""


def evaluate_facts(specs: Mapping[str, FactSpec], document: Any) -> list[dict[str, Any]]:
    """Return each fact with its value over `document`, sorted by name. The facts share one budget equally, so that a fact
    that is too expensive fails alone."""
    max_steps = MAX_FACT_STEPS // max(len(specs), 1)
    return [_evaluate_fact(name, specs[name], document, max_steps) for name in sorted(specs)]


def _evaluate_fact(name: str, spec: FactSpec, document: Any, max_steps: int) -> dict[str, Any]:
    status: FactStatus = "known"
    value: Any = None
    try:
        value = _typed_value(spec.kind, jmespath.search(spec.expression, document, max_steps=max_steps))
    except UnknownValueRead:
        status = "depends_on_results"
    except JMESPathError:
        status = "failed"
    if status == "known" and (value is None or len(strict_json.dumps(value)) > MAX_FACT_BYTES):
        status, value = "failed", None
    return {
        "name": name,
        "label": spec.label or name,
        "unit": spec.unit,
        "kind": spec.kind,
        "status": status,
        "value": value,
    }


def _typed_value(kind: FactKind | None, value: Any) -> Any:
    """Return the value as its kind is written, or None if it is of another kind."""
    match kind:
        case "decimal":
            number = jmespath.parse_decimal(value)
            return None if number is None else format(number, "f")
        case "integer":
            return value if isinstance(value, int) and not isinstance(value, bool) else None
        case "text":
            return value if isinstance(value, str) else None
        case None:
            return value


def fact_document(
    body: Mapping[str, Any], references: Described, graph: PlanGraph | None, documents: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the body that facts are computed over: with values in the place of variables, UNKNOWN for what is known
    only later, and glimpses beside the handles of references. `graph` is None for a plan without variables; `documents`
    are those of its gate."""

    def known(text: str) -> Any:
        parsed = parse(text)
        if isinstance(parsed, str):
            return parsed
        return _known_value(parsed, references, graph, documents)

    def described(handle: Mapping[str, Any]) -> Mapping[str, Any]:
        return references.get((handle["kind"], handle["id"]), handle)

    return {
        **body,
        "actions": [
            {
                **action,
                "payload": action["payload"]
                if graph is None
                else replace_variables(action["payload"], known),
                "references": [described(handle) for handle in action["references"]],
            }
            for action in body["actions"]
        ],
    }


def _known_value(
    expression: Expression,
    references: Described,
    graph: PlanGraph | None,
    documents: Mapping[str, Any],
) -> Any:
    """Return the value of a variable, or UNKNOWN if an action or a stored value may provide it."""
    for conjunction in expression.alternatives:
        values = [_value_at(path, references, graph, documents) for path in conjunction]
        if UNKNOWN in values:
            return UNKNOWN
        if MISSING not in values:
            return values[-1]
    return UNKNOWN


def _value_at(
    path: VariablePath, references: Described, graph: PlanGraph | None, documents: Mapping[str, Any]
) -> Any:
    root = document_root(path)
    if path.kind == REF:
        handle = (root.path[0].key, root.path[1].key)
        return references.get(handle, UNKNOWN) if path == root else UNKNOWN
    if is_text(root) or (graph is not None and graph.writers(path)):
        return UNKNOWN
    return resolve_path(documents.get(path.kind, MISSING), path.path)
