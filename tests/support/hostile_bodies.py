"""Hostile bodies for every field of every request, made from the OpenAPI document.

A place is a field of a request's body, wherever the document has one: in lists, in mappings, in each variant of a union.
The body around it is as small as it can be and valid, so that the service reaches the place.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from app.api.openapi import operations

Schema = Mapping[str, Any]
Steps = tuple[str | int, ...]

JSON = "application/json"
MAX_DEPTH = 50
"""Containers inside one another: the JSON gate takes 64."""
FREE = (
    ("numbers", "0"),
    ("empty objects", "{}"),
    ("nulls", "null"),
    ("texts", '""'),
    ("deep lists", "[" * MAX_DEPTH + "]" * MAX_DEPTH),
    ("deep objects", '{"d":' * MAX_DEPTH + "0" + "}" * MAX_DEPTH),
)


@dataclass(frozen=True, slots=True)
class Hostile:
    """One request: `shape` says what is wrong at `place`, a JSON pointer into the body."""

    operation: str
    method: str
    path: str
    place: str
    shape: str
    body: bytes


class Generator:
    """Makes the requests of a document. `samples` are valid values of top-level fields by name, `optional` those of fields
    that requests have although they need not."""

    def __init__(
        self,
        document: Schema,
        samples: Mapping[str, Any],
        size: int,
        optional: Mapping[str, Any] | None = None,
    ) -> None:
        self._document = document
        self._samples = samples
        self._optional = optional or {}
        self._size = size

    def requests(self, *, only: Collection[str] = (), but_not: Collection[str] = ()) -> Iterator[Hostile]:
        """Every shape at every place of every operation that takes JSON, or of those that are chosen by their names."""
        for path, method, operation in operations(dict(self._document)):
            content = operation.get("requestBody", {}).get("content", {})
            if JSON not in content:
                continue
            name = operation["operationId"]
            if (only and name not in only) or name in but_not:
                continue
            root = self.resolved(content[JSON]["schema"])
            base = {
                field: self._samples.get(field, self.sample(root["properties"][field]))
                for field in root.get("required", ())
            } | {field: held for field, held in self._optional.items() if field in root["properties"]}
            for shape, text in self._shapes({**root, "type": "object"}, base):
                yield Hostile(name, method, path, "", shape, text.encode())
            seen: set[tuple[str, str]] = set()
            for steps, schema, model in self._places(root, (), "", frozenset()):
                if (place := (model, _field(steps[-1]))) in seen:
                    continue
                seen.add(place)
                for shape, text in self._shapes(schema, None):
                    body = self._embedded(root, base, steps, text)
                    yield Hostile(name, method, path, "".join(f"/{s}" for s in steps), shape, body)

    # -- places ----------------------------------------------------------------------------------------------

    def resolved(self, schema: Schema) -> Schema:
        name = schema.get("$ref")
        return schema if name is None else self._document["components"]["schemas"][name.rpartition("/")[2]]

    def _variants(self, schema: Schema) -> list[Schema]:
        """The schema, or those of its union, but for null."""
        held = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
        if "$ref" in schema:
            return self._variants(self.resolved(schema))
        return (
            [v for inner in held for v in self._variants(inner) if v.get("type") != "null"]
            if held
            else [schema]
        )

    def _places(
        self, schema: Schema, steps: Steps, model: str, above: frozenset[str]
    ) -> Iterator[tuple[Steps, Schema, str]]:
        """Every field below `schema`, with the steps to it and its model."""
        for variant in self._variants(schema):
            if isinstance(items := variant.get("items"), dict):
                yield from self._places(items, (*steps, 0), model, above)
            if isinstance(held := variant.get("additionalProperties"), dict):
                yield from self._places(held, (*steps, "x"), model, above)
            if "properties" not in variant or (title := str(variant.get("title"))) in above:
                continue
            kind = variant["properties"].get("kind", {}).get("const")
            for field, inner in variant["properties"].items():
                here = (*steps, field if kind is None else f"{kind}:{field}")
                yield here, inner, title
                yield from self._places(inner, here, title, above | {title})

    def _embedded(self, root: Schema, base: Mapping[str, Any], steps: Steps, text: str) -> bytes:
        """The base with `text`, which is JSON, at a place."""
        mark = "0b5e7a1f"
        body = dict(base)
        first = _field(steps[0])
        if len(steps) == 1:
            body[first] = mark
        else:
            body[first] = self._around(root["properties"][first], steps[1:], mark)
        return json.dumps(body).replace(json.dumps(mark), text).encode()

    def _around(self, schema: Schema, steps: Steps, mark: str) -> Any:
        """A value of this schema, as small as possible, with the mark at the place."""
        step, rest = steps[0], steps[1:]
        for variant in self._variants(schema):
            if step == 0 and "items" in variant:
                return [self._around(variant["items"], rest, mark)]
            if step == "x" and isinstance(variant.get("additionalProperties"), dict):
                return {"x": self._around(variant["additionalProperties"], rest, mark)}
            kind, _, field = str(step).rpartition(":")
            properties = variant.get("properties", {})
            if field in properties and properties.get("kind", {}).get("const", "") == kind:
                inner = mark if not rest else self._around(properties[field], rest, mark)
                return {**self.sample(variant), field: inner}
        raise AssertionError(f"no variant has {step}")

    def sample(self, schema: Schema) -> Any:
        """A valid value, as small as possible."""
        variant = next(iter(self._variants(schema)), {})
        if "const" in variant or "enum" in variant:
            return variant.get("const") or variant["enum"][0]
        kind = variant.get("type")
        if kind == "string":
            return "0" * 64 if "pattern" in variant else "a" * max(1, variant.get("minLength", 0))
        if kind in ("integer", "number"):
            return int(variant.get("minimum", 1))
        if kind == "array":
            return [self.sample(variant["items"])] * variant.get("minItems", 0)
        if kind == "object":
            needed = {
                field: self.sample(variant["properties"][field]) for field in variant.get("required", ())
            }
            constant = variant.get("properties", {}).get("kind", {}).get("const")
            return {**({"kind": constant} if constant else {}), **needed}
        return True if kind == "boolean" else {}

    # -- shapes ----------------------------------------------------------------------------------------------

    def _shapes(self, schema: Schema, base: Mapping[str, Any] | None) -> Iterator[tuple[str, str]]:
        """(name, JSON text) of what is put at a place."""
        yield "wrong keys", self._object("0", base)
        yield "long key", self._object("0", base, key="k" * (self._size - 1000))
        if base is not None:
            return
        yield "long text", '"' + "x" * (self._size - 1000) + '"'
        for name, element in FREE:
            yield f"many {name}", self._list(element)
        for number, variant in enumerate(self._variants(schema)):
            yield from self._of_variant(number, variant)

    def _of_variant(self, number: int, variant: Schema) -> Iterator[tuple[str, str]]:
        entry = variant.get("items") or variant.get("additionalProperties")
        if isinstance(entry, dict):
            pack = self._list if "items" in variant else self._object
            most = variant.get("maxItems") or variant.get("maxProperties") or 1000
            for position, inner in enumerate(self._variants(entry)):
                wrong = json.dumps(self._wrong_everywhere(inner, 0))
                yield f"union {number}.{position}: wrong everywhere", pack(wrong)
                padded = self._padded(self.sample(inner), most)
                yield (
                    f"union {number}.{position}: as many as fit, full of wrong keys",
                    pack(padded, most=most),
                )
                valid = json.dumps(self.sample(inner))
                yield f"union {number}.{position}: as many as fit, valid", pack(valid, most=most)
        if variant.get("additionalProperties") is True or not variant:
            for name, element in FREE:
                yield f"free object of {name}", '{"x": ' + self._list(element) + "}"
        if "properties" in variant:
            wrong = json.dumps(self._wrong_everywhere(variant, 0))
            yield f"union {number}: wrong everywhere", wrong
            padded = self._padded({}, 1)
            yield f"union {number}: wrong keys", padded

    def _wrong_everywhere(self, schema: Schema, depth: int) -> Any:
        """A value whose containers are as the schema says and whose leaves are not."""
        variant = max(self._variants(schema), key=lambda v: len(v.get("properties", {})), default={})
        if depth > 6:
            return [[]]
        if isinstance(variant.get("items"), dict):
            return [self._wrong_everywhere(variant["items"], depth + 1)] * 3
        if isinstance(variant.get("additionalProperties"), dict):
            return {
                f"k{n}": self._wrong_everywhere(variant["additionalProperties"], depth + 1) for n in range(3)
            }
        if "properties" in variant:
            kind = variant["properties"].get("kind", {}).get("const")
            return {
                field: kind if field == "kind" and kind else self._wrong_everywhere(inner, depth + 1)
                for field, inner in variant["properties"].items()
            }
        return [{"x": []}]

    def _padded(self, value: Any, count: int) -> str:
        """One of `count` values that fill a body together: with keys that nobody knows."""
        share = max(10, (self._size - 2000) // count - len(json.dumps(value)) - 2)
        if not isinstance(value, dict):
            return json.dumps(value)
        return self._object("0", value, size=share)

    def _list(self, element: str, *, most: int | None = None) -> str:
        count = (self._size - 2000) // (len(element) + 5)
        return "[" + ",".join(_distinct(element, n) for n in range(min(count, most or count))) + "]"

    def _object(
        self,
        element: str,
        base: Mapping[str, Any] | None = None,
        *,
        key: str = "",
        most: int | None = None,
        size: int | None = None,
    ) -> str:
        """An object of as many keys as fit, after those of the base."""
        start = json.dumps(base or {})[:-1] + (", " if base else "")
        room = (size or self._size - 1000) - len(start)
        count = 1 if key else room // (len(element) + 10)
        keys = (
            f'"{key or f"k{n}"}":{_distinct(element, n)}' for n in range(max(1, min(count, most or count)))
        )
        return start + ",".join(keys) + "}"


def _distinct(element: str, number: int) -> str:
    """The element, with names that no other has."""
    return element.replace('"a"', f'"a{number}"') if '"a"' in element else element


def _field(step: str | int) -> str:
    return str(step).rpartition(":")[2]
