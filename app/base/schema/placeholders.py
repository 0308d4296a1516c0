"""A schema for values of which some are still to come: in their places stand holes, and all around them is checked.

Two forms of each part of a schema: one that a value may still match, whatever fills its holes, and one that it surely
matches, for what stands in `not`, `if` and the "no more than one" of `oneOf`. Each part is there once in each form, in its
place or, if it has several, on a shelf, so a document is a few times as large as its schema and costs a few times as much.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from app.base.schema.messages import LENIENT
from app.base.schema.parts import AT_A_HOLE, HOLE, HOLE_NAME, References
from app.base.schema.variants import kinds_apart

_AS_IT_IS: Final = (
    "type",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minContains",
    "minProperties",
    "maxProperties",
    "required",
    "dependentRequired",
    "discriminator",
)
_BELOW: Final = (
    "properties",
    "patternProperties",
    "additionalProperties",
    "items",
    "prefixItems",
    "additionalItems",
    "contains",
)
"""Not `unevaluated...`: what counts as evaluated may be up to a condition that nobody knows the outcome of yet."""

_BESIDE: Final = ("allOf", "anyOf", "dependentSchemas", "dependencies")
_UNSURE: Final = ("not", "oneOf", "maxContains", "uniqueItems", "unevaluatedProperties", "unevaluatedItems")
"""Where a schema has one of these, no value with a hole is said to match it for sure."""

_MAPS: Final = ("properties", "patternProperties", "dependentSchemas", "dependencies")
_SHELF: Final = "#/$defs/"
_CONTAINER_NAME: Final = f"{LENIENT}container"


def with_holes(references: References, root: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema, which was accepted before, for values with placeholders: what can match `root`
    matches, and what cannot match, whatever fills its placeholders, does not. Exceptions are nested
    combinations of `not`, `if`, `oneOf` and the like, and what `unevaluated...` would reject."""
    return _Opening(references, str(root.get("$schema", ""))).document(root)


class _Opening:
    def __init__(self, references: References, dialect: str) -> None:
        self._references = references
        self._links = {"$ref"}
        if "2019-09" in dialect:
            self._links.add("$recursiveRef")
        elif not dialect or "2020-12" in dialect:
            self._links.add("$dynamicRef")
        self._dialect = {"$schema": dialect} if dialect else {}
        self._shelf: dict[str, Any] = {
            HOLE_NAME: {"type": "string", "pattern": f"^{HOLE}"},
            _CONTAINER_NAME: {"type": ["object", "array"]},
        }
        self._names: dict[tuple[int, bool], str] = {}
        self._uses: dict[str, list[dict[str, Any]]] = {}
        self._stays: set[str] = set()
        self._waiting: list[tuple[str, Mapping[str, Any], bool]] = []

    def document(self, root: Mapping[str, Any]) -> dict[str, Any]:
        whole = self._part(root, sure=False)
        while self._waiting:
            name, schema, sure = self._waiting.pop()
            self._shelf[name] = self._sure(schema) if sure else self._open(schema)
        self._put_into_place()
        return {**self._dialect, "allOf": [whole], "$defs": self._shelf}

    def _put_into_place(self) -> None:
        """Inline what is referred to once: references cost a validator time to resolve and memory to keep."""
        for name, uses in self._uses.items():
            if len(uses) == 1 and name not in self._stays:
                uses[0].clear()
                uses[0].update(self._shelf.pop(name))

    def _part(self, schema: Any, *, sure: bool, stays: bool = False) -> Any:
        """Return what replaces a schema at the same place of a value. `stays`: as a reference, whatever
        else uses it."""
        if not isinstance(schema, Mapping):
            return schema
        name = self._names.get((id(schema), sure))
        if name is None:
            name = self._names[id(schema), sure] = str(len(self._names))
            self._waiting.append((name, schema, sure))
        if stays:
            self._stays.add(name)
        use = {"$ref": _SHELF + name}
        self._uses.setdefault(name, []).append(use)
        return use

    def _below(self, schema: Any, *, sure: bool) -> Any:
        """Return the same for a place of its own, where a placeholder may be."""
        part = self._part(schema, sure=sure)
        if not isinstance(part, Mapping):
            return part
        return {"allOf": [{"not": AT_A_HOLE}, part]} if sure else {"anyOf": [part, AT_A_HOLE]}

    def _or(self, rule: Any, lenient: Mapping[str, Any]) -> dict[str, Any]:
        """Return a rule with an alternative, in the form that the messages recognize."""
        return {"anyOf": [rule, {"$ref": self._shelved(lenient)}]}

    def _shelved(self, part: Any) -> str:
        """Return a reference to a schema that may itself be only a reference."""
        if isinstance(part, Mapping) and part.keys() == {"$ref"}:
            return str(part["$ref"])
        name = f"{LENIENT}{len(self._shelf)}"
        self._shelf[name] = part
        return _SHELF + name

    def _common(self, schema: Mapping[str, Any], *, sure: bool) -> tuple[dict[str, Any], list[Any]]:
        """Return what both forms share, and what must hold besides."""
        made: dict[str, Any] = {key: schema[key] for key in _AS_IT_IS if key in schema}
        for key in _BELOW:
            if key in schema:
                made[key] = _mapped(key, schema[key], lambda held: self._below(held, sure=sure))
        for key in _BESIDE:
            if key in schema:
                made[key] = _mapped(key, schema[key], lambda held: self._part(held, sure=sure))
        if "propertyNames" in schema:
            made["propertyNames"] = self._part(schema["propertyNames"], sure=False)  # no name is a hole
        links = {key: held for key, held in schema.items() if key in self._links}
        targets = [self._part(target, sure=sure, stays=True) for target in self._references.of(links)]
        if "$ref" in schema:  # before 2019 nothing else counts beside it
            made["$ref"] = self._shelved(targets.pop(0))
        return made, targets

    def _open(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Return the schema that a value may still match."""
        made, rules = self._common(schema, sure=False)
        for key in ("enum", "const"):
            if key in schema:
                options = schema[key] if key == "enum" else [schema[key]]
                if any(isinstance(option, Mapping | list) for option in options):
                    rules.append({"anyOf": [{key: schema[key]}, {"$ref": _SHELF + _CONTAINER_NAME}]})
                else:
                    made[key] = schema[key]
        if "not" in schema:
            made["not"] = self._part(schema["not"], sure=True, stays=True)  # which its message goes by
        if "maxContains" in schema and "contains" in schema:
            counted = self._below(schema["contains"], sure=True)
            rules.append({"contains": counted, "minContains": 0, "maxContains": schema["maxContains"]})
        if "oneOf" in schema:
            some = [self._part(held, sure=False) for held in schema["oneOf"]]
            if "anyOf" in made:
                rules.append({"anyOf": some})
            else:
                made["anyOf"] = some
            if kinds_apart(self._references, schema, "oneOf") is None:
                surely = [self._part(held, sure=True) for held in schema["oneOf"]]
                rules.append(self._or({"oneOf": surely}, {"not": {"anyOf": surely}}))
        if "if" in schema:
            for key, sure in (("then", True), ("else", False)):
                if key in schema:
                    held = self._part(schema[key], sure=False)
                    rules.append({"if": self._part(schema["if"], sure=sure), key: held})
        return _with(made, rules)

    def _sure(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Return the schema that a value matches whatever fills its placeholders; narrower than that if it
        cannot be expressed simply."""
        if any(key in schema for key in _UNSURE):
            return {"not": {}}
        made, rules = self._common(schema, sure=True)
        made |= {key: schema[key] for key in ("enum", "const") if key in schema}
        if "if" in schema:
            rules += [self._part(schema[key], sure=True) for key in ("then", "else") if key in schema]
        return _with(made, rules)


def _mapped(key: str, held: Any, one: Any) -> Any:
    if isinstance(held, Mapping) and key in _MAPS:
        return {name: one(inner) for name, inner in held.items()}
    if isinstance(held, Sequence) and not isinstance(held, str):
        return [one(inner) for inner in held]
    return one(held)


def _with(made: dict[str, Any], rules: list[Any]) -> dict[str, Any]:
    return {**made, "allOf": [*made.get("allOf", []), *rules]} if rules else made
