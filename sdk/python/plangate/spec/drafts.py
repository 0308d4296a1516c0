"""Reading a spec as its author wrote it: its parts with their places, and errors of unreadable parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from plangate.json_pointer import json_pointer
from plangate.spec.base import SpecModel
from plangate.spec.models import AgentSpec, PlanSpec, ReferenceSpec, RuntimeSpec, ToolkitSpec, ToolSpec
from plangate.spec.problems import Problem, SpecInvalid, Step, document_path, shape_problems

Part = TypeVar("Part", bound=SpecModel, covariant=True)

_LISTS: Final[Mapping[str, type[SpecModel]]] = {
    "agents": AgentSpec,
    "tools": ToolSpec,
    "plans": PlanSpec,
    "references": ReferenceSpec,
    "toolkits": ToolkitSpec,
}
_MAPS: Final = frozenset({"providers", "approvalPredicates", "actionDispatchers"})
_PARTIAL: Final = _MAPS | {"approvalPolicies", "approvalOverrides", "limits"}
_REQUIRED: Final[Mapping[str, Any]] = {"tenant": {"resourceId": "unread"}, "agents": ()}


@dataclass(frozen=True, slots=True)
class DraftPart(Generic[Part]):
    """A part of a spec and its place in the document."""

    value: Part
    pointer: str
    raw: Any

    def at(self, *location: Step) -> str:
        """Return the pointer to a place inside the part."""
        return self.pointer + json_pointer(document_path(self.raw, location))


@dataclass(frozen=True, slots=True)
class Draft:
    """The readable parts of a spec, before they are checked against each other.

    `spec` lacks the parts that could not be read: `problems` says why, `names` still knows their names (by
    field, with the pointers to each), and the fields in `unread` are missing altogether.
    """

    raw: Mapping[str, Any]
    spec: RuntimeSpec
    indexes_by_part: Mapping[str, tuple[int, ...]]
    names: Mapping[str, Mapping[str, tuple[str, ...]]]
    unread: frozenset[str] = frozenset()
    problems: tuple[Problem, ...] = ()
    agents: tuple[DraftPart[AgentSpec], ...] = field(init=False)
    tools: tuple[DraftPart[ToolSpec], ...] = field(init=False)
    plans: tuple[DraftPart[PlanSpec], ...] = field(init=False)
    references: tuple[DraftPart[ReferenceSpec], ...] = field(init=False)
    toolkits: tuple[DraftPart[ToolkitSpec], ...] = field(init=False)

    def __post_init__(self) -> None:
        agents = self._parts("agents", self.spec.agents)
        plans = (*self._parts("plans", self.spec.plans), *_inline_plans(agents))
        references = (*self._parts("references", self.spec.references), *_inline_references(agents))
        object.__setattr__(self, "agents", agents)
        object.__setattr__(self, "tools", self._parts("tools", self.spec.tools))
        object.__setattr__(self, "plans", plans)
        object.__setattr__(self, "references", references)
        object.__setattr__(self, "toolkits", self._parts("toolkits", self.spec.toolkits))

    def at(self, *location: Step) -> str:
        """Return the pointer to a place in the document."""
        return json_pointer(document_path(self.raw, location))

    def is_declared(self, part: str, name: str) -> bool:
        """Return whether `part` (a field of the spec) has an item of that name, or could not be read at all."""
        return part in self.unread or name in self.names[part]

    def known(self, part: str) -> list[str]:
        """Return the names in `part`, for a hint."""
        return list(self.names[part])

    def _parts(self, part: str, values: tuple[Part, ...]) -> tuple[DraftPart[Part], ...]:
        items = _field(self.raw, part, ())
        indexes = self.indexes_by_part.get(part, tuple(range(len(values))))
        return tuple(
            DraftPart(value, self.at(part, index), items[index])
            for value, index in zip(values, indexes, strict=True)
        )


def _inline_plans(agents: tuple[DraftPart[AgentSpec], ...]) -> Iterator[DraftPart[PlanSpec]]:
    for agent in agents:
        if isinstance(agent.value.plan, PlanSpec):
            yield DraftPart(agent.value.plan, agent.at("plan"), _field(agent.raw, "plan", {}))


def _inline_references(agents: tuple[DraftPart[AgentSpec], ...]) -> Iterator[DraftPart[ReferenceSpec]]:
    for agent in agents:
        items = _field(agent.raw, "references", ())
        for index, reference in enumerate(agent.value.references):
            yield DraftPart(reference, agent.at("references", index), items[index])


def read_draft(raw: Any) -> Draft:
    """Read as much of a spec as possible. Raise SpecInvalid only if it is not an object."""
    document = _plain(raw)
    if not isinstance(document, Mapping):
        raise SpecInvalid([Problem("", f"a spec is an object, not {type(raw).__name__}")])
    document = _with_bound_tools(raw, document)
    names = _names(document)
    try:
        return Draft(document, RuntimeSpec.model_validate(document), {}, names)
    except ValidationError as error:
        shape_errors = shape_problems(error, document)
    reduced, numbers, unread = _without_broken(document, {path for path, _ in shape_errors})
    problems = tuple(problem for _, problem in shape_errors)
    try:
        return Draft(document, RuntimeSpec.model_validate(reduced), numbers, names, unread, problems)
    except ValidationError:
        raise SpecInvalid(problems) from None


def _with_bound_tools(raw: Any, document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the document with the tools that agents and plans were given as objects, where it does not declare them
    itself."""
    agents = raw.agents if isinstance(raw, RuntimeSpec) else _items(_field(raw, "agents", ()))
    plans = raw.plans if isinstance(raw, RuntimeSpec) else _items(_field(raw, "plans", ()))
    inline = [agent.plan for agent in agents if isinstance(agent, AgentSpec)]
    holders = [one for one in (*agents, *plans, *inline) if isinstance(one, AgentSpec | PlanSpec)]
    bound = [tool for holder in holders for tool in holder.bound_tools]
    declared = _items(_field(document, "tools", ()))
    for tool in bound:
        if not any(_is_same_tool(tool, other) for other in declared):
            declared.append(_plain(tool))
    return {**document, "tools": declared} if bound else document


def _is_same_tool(tool: ToolSpec, declared: Any) -> bool:
    if not isinstance(declared, Mapping) or declared.get("name") != tool.name:
        return False
    try:
        return ToolSpec.model_validate(declared).to_wire() == tool.to_wire()
    except ValidationError:
        return False


def _without_broken(
    document: Mapping[str, Any], broken: set[tuple[Step, ...]]
) -> tuple[dict[str, Any], dict[str, tuple[int, ...]], frozenset[str]]:
    """Return the document without its broken parts, the remaining indexes of each list, and the removed fields."""
    reduced: dict[str, Any] = {}
    numbers: dict[str, tuple[int, ...]] = {}
    unread: set[str] = set()
    broken_in = _by_head(broken)
    for key, value in document.items():
        if not isinstance(key, str):
            continue
        part = to_camel(key)
        below = broken_in.get(key, set())
        if not below:
            reduced[key] = value
        elif () in below or part not in (_LISTS.keys() | _PARTIAL):
            unread.add(part)
        elif part in _PARTIAL:
            heads = _by_head(below)
            reduced[key] = {name: inner for name, inner in value.items() if name not in heads}
        else:
            heads = _by_head(below)
            items = {
                index: _largest_valid(_LISTS[part], item, heads.get(index, set()))
                for index, item in enumerate(value)
            }
            numbers[part] = tuple(index for index, item in items.items() if item is not None)
            reduced[key] = [item for item in items.values() if item is not None]
    present = {to_camel(key) for key in reduced}
    for part, placeholder in _REQUIRED.items():
        if part not in present:
            unread.add(part)
            reduced[part] = placeholder
    return reduced, numbers, frozenset(unread)


def _by_head(paths: set[tuple[Step, ...]]) -> dict[Step, set[tuple[Step, ...]]]:
    """First step -> what follows it."""
    grouped: dict[Step, set[tuple[Step, ...]]] = {}
    for head, *rest in filter(None, paths):
        grouped.setdefault(head, set()).add(tuple(rest))
    return grouped


def _largest_valid(model: type[SpecModel], item: Any, broken: set[tuple[Step, ...]]) -> Any:
    """Return the item without its broken fields, or None if it is not valid without them."""
    if not broken:
        return item
    if () in broken or not isinstance(item, Mapping):
        return None
    heads = _by_head(broken)
    left = {key: inner for key, inner in item.items() if key not in heads}
    try:
        model.model_validate(left)
    except ValidationError:
        return None
    return left


def _names(document: Mapping[str, Any]) -> dict[str, dict[str, tuple[str, ...]]]:
    """Field -> name -> the pointers to that name, of all that has one, whether it can be read or not."""
    names: dict[str, dict[str, tuple[str, ...]]] = {}
    for part in ("agents", "tools", "plans"):
        names[part] = {}
        for item, place in _nameable(document, part):
            name = item.get("name") if isinstance(item, Mapping) else None
            if isinstance(name, str):
                pointer = json_pointer(document_path(document, (*place, "name")))
                names[part][name] = (*names[part].get(name, ()), pointer)
    for part in _MAPS:
        members = _field(document, part, {})
        entries = members.items() if isinstance(members, Mapping) else ()
        names[part] = {str(key): () for key, value in entries if value is not None}
    return names


def _nameable(document: Mapping[str, Any], part: str) -> Iterator[tuple[Any, tuple[Step, ...]]]:
    for index, item in enumerate(_items(_field(document, part, ()))):
        yield item, (part, index)
    if part == "plans":
        for index, agent in enumerate(_items(_field(document, "agents", ()))):
            yield _field(agent, "plan", None), ("agents", index, "plan")


def _items(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def _field(raw: Any, name: str, default: Any) -> Any:
    """Return a field of an object, in either spelling."""
    path = document_path(raw, (name,))
    return raw.get(path[0], default) if path and isinstance(raw, Mapping) else default


def _plain(value: Any) -> Any:
    """Return models and containers as JSON-like data; values inside (callables, prompts) stay unchanged."""
    if isinstance(value, SpecModel):
        return {
            spec_field.alias or name: _plain(getattr(value, name))
            for name, spec_field in type(value).model_fields.items()
            if name in value.model_fields_set or name == "kind"
        }
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value
