"""Incompatibilities of a new API document with the released one.

`make check` compares openapi/openapi.json with openapi/released.json. A change that breaks programs fails, until the part
of CHANGELOG.md about the next release names it: the text in backticks of the line that this module prints.

Until the first release, openapi/released.json is the document that this release will have. Nobody has written a program
for it, but a change that would break one is still named, so that nobody makes it by mistake.

    python -m tests.support.api_compatibility             check
    python -m tests.support.api_compatibility --release   make the document the released one, with each release
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

ROOT: Final = Path(__file__).parents[2]
METHODS: Final = ("get", "put", "post", "delete", "patch")
UPPER_BOUNDS: Final = ("maximum", "maxLength", "maxItems", "maxProperties")
LOWER_BOUNDS: Final = ("minimum", "minLength", "minItems", "minProperties")
Schema = Mapping[str, Any]
Direction = Literal["request", "response"]


def incompatible_changes(old: Schema, new: Schema) -> list[str]:
    """Return what may break a program, each as a line that begins with the changed thing in backticks.

    A request breaks if something that was accepted no longer is. A response breaks if something that was there may be
    missing, or may have another type. New values of an enum in responses do not count: readers ignore what they do
    not know.
    """
    return list(dict.fromkeys(_changed_operations(old, new)))


def _changed_operations(old: Schema, new: Schema) -> Iterator[str]:
    for path, item in old["paths"].items():
        for method in (m for m in METHODS if m in item):
            name = f"{method.upper()} {path}"
            changed = new["paths"].get(path, {}).get(method)
            if changed is None:
                yield f"`{name}` was removed"
                continue
            comparison = Comparison(old, new)
            if item[method]["operationId"] != changed["operationId"]:
                yield f"`{item[method]['operationId']}`, the operation id of {name}, is {changed['operationId']} now"
            yield from comparison.parameters(name, item[method], changed)
            yield from comparison.bodies(name, item[method], changed)


class Comparison:
    """Compares the schemas of two documents. Each pair of definitions is compared once per direction."""

    def __init__(self, old: Schema, new: Schema) -> None:
        self._old, self._new = old, new
        self._seen: set[tuple[Direction, str, str]] = set()

    def parameters(self, name: str, old: Schema, new: Schema) -> Iterator[str]:
        resolved = [self._resolve(self._old, p) for p in old.get("parameters", ())]
        before = {(p["in"], p["name"]): p for p in resolved}
        resolved = [self._resolve(self._new, p) for p in new.get("parameters", ())]
        after = {(p["in"], p["name"]): p for p in resolved}
        for key, parameter in before.items():
            where = f"{name} {key[1]}"
            if key not in after:
                yield f"`{where}` was removed"
            else:
                yield from self.schemas("request", where, parameter["schema"], after[key]["schema"])
        for key, parameter in after.items():
            if parameter.get("required") and not before.get(key, {}).get("required"):
                yield f"`{name} {key[1]}` is required now"

    def bodies(self, name: str, old: Schema, new: Schema) -> Iterator[str]:
        before, after = old.get("requestBody", {}), new.get("requestBody", {})
        if after.get("required") and not before.get("required"):
            yield f"`{name} body` is required now"
        yield from self._media("request", f"{name} body", before.get("content", {}), after.get("content", {}))
        for status, response in old["responses"].items():
            if status.startswith("2") and status not in new["responses"]:
                yield f"`{name} {status}` was removed"
            elif status.startswith("2"):
                was = self._resolve(self._old, response).get("content", {})
                now = self._resolve(self._new, new["responses"][status]).get("content", {})
                yield from self._media("response", f"{name} {status}", was, now)

    def _media(self, direction: Direction, where: str, old: Schema, new: Schema) -> Iterator[str]:
        for media_type, body in old.items():
            if media_type not in new:
                yield f"`{where} {media_type}` was removed"
            else:
                yield from self.schemas(
                    direction, where, body.get("schema", {}), new[media_type].get("schema", {})
                )

    def schemas(self, direction: Direction, where: str, old: Schema, new: Schema) -> Iterator[str]:
        """Compare two schemas. `where` is the path to them, or the name of their definition."""
        pair = (direction, old.get("$ref", ""), new.get("$ref", ""))
        if all(pair[1:]):
            if pair in self._seen:
                return
            self._seen.add(pair)
        if "$ref" in old:
            where = old["$ref"].rpartition("/")[2]
        old, new = self._resolve(self._old, old), self._resolve(self._new, new)
        variants = [_variants(schema) for schema in (old, new)]
        if any(variants):
            yield from self._unions(direction, where, variants[0] or [old], variants[1] or [new])
            return
        yield from _changed_type(direction, where, old, new)
        if direction == "request":
            yield from _tighter_bounds(where, old, new)
        yield from self._objects(direction, where, old, new)
        for key in ("items", "additionalProperties"):
            if isinstance(old.get(key), Mapping) and isinstance(new.get(key), Mapping):
                yield from self.schemas(direction, f"{where}[]", old[key], new[key])

    def _objects(self, direction: Direction, where: str, old: Schema, new: Schema) -> Iterator[str]:
        before, after = old.get("properties", {}), new.get("properties", {})
        needed, needed_now = set(old.get("required", ())), set(new.get("required", ()))
        for name, schema in before.items():
            if name not in after:
                if direction == "response" or new.get("additionalProperties") is False:
                    yield f"`{where}.{name}` was removed"
            else:
                yield from self.schemas(direction, f"{where}.{name}", schema, after[name])
        if direction == "request":
            yield from (f"`{where}.{name}` is required now" for name in sorted(needed_now - needed))
        else:
            yield from (
                f"`{where}.{name}` may be missing now"
                for name in sorted((needed - needed_now) & after.keys())
            )

    def _unions(
        self, direction: Direction, where: str, old: Sequence[Schema], new: Sequence[Schema]
    ) -> Iterator[str]:
        before = {self._kind(self._old, schema): schema for schema in old}
        after = {self._kind(self._new, schema): schema for schema in new}
        for kind, schema in before.items():
            if kind in after:
                yield from self.schemas(direction, where, schema, after[kind])
            elif direction == "request" and not any(
                self._accepts_all(self._new, schema) for schema in after.values()
            ):
                yield f"`{where}` no longer accepts {kind}"
        if direction == "response" and not any(
            self._accepts_all(self._old, schema) for schema in before.values()
        ):
            for kind in after.keys() - before.keys():
                if not kind.startswith(
                    "variant "
                ):  # a new variant of a discriminated union is like a new enum value
                    yield f"`{where}` may be {kind} now"

    def _kind(self, document: Schema, schema: Schema) -> str:
        """Return what distinguishes a variant of a union: the value of its discriminator, or its type."""
        resolved = self._resolve(document, schema)
        for name in ("type", "kind", "purpose"):
            constant = resolved.get("properties", {}).get(name, {}).get("const")
            if constant is not None:
                return f"variant {constant}"
        if "const" in resolved or "enum" in resolved:
            return (
                "a string"
                if isinstance(resolved.get("const", resolved.get("enum", [""])[0]), str)
                else "a constant"
            )
        return {"object": "an object", "array": "an array", "null": "null"}.get(
            str(resolved.get("type")), f"a {resolved.get('type', 'value')}"
        )

    def _accepts_all(self, document: Schema, schema: Schema) -> bool:
        return not self._resolve(document, schema).keys() - {"title", "description", "examples"}

    @staticmethod
    def _resolve(document: Schema, schema: Schema) -> Schema:
        while "$ref" in schema:
            kind, _, name = schema["$ref"].removeprefix("#/components/").partition("/")
            schema = document["components"][kind][name]
        return schema


def _variants(schema: Schema) -> list[Schema]:
    types = schema.get("type")
    if isinstance(types, list):
        return [{**schema, "type": one} for one in types]
    return list(schema.get("anyOf", schema.get("oneOf", ())))


def _changed_type(direction: Direction, where: str, old: Schema, new: Schema) -> Iterator[str]:
    before, after = old.get("type"), new.get("type")
    numbers = ("integer", "number") if direction == "request" else ("number", "integer")
    if before != after and (before, after) != numbers:
        lost = after is not None if direction == "request" else before is not None
        if lost:
            yield f"`{where}` is of type {after or 'any'} now, not {before or 'any'}"
    if direction == "request":
        values = [
            schema.get("enum", [schema["const"]] if "const" in schema else None) for schema in (old, new)
        ]
        if values[1] is not None:
            gone = [value for value in values[0] or ["other values"] if value not in values[1]]
            if gone:
                yield f"`{where}` no longer accepts {', '.join(map(str, gone))}"


def _tighter_bounds(where: str, old: Schema, new: Schema) -> Iterator[str]:
    for name in UPPER_BOUNDS:
        if name in new and new[name] < old.get(name, float("inf")):
            yield f"`{where}` has {name} {new[name]} now"
    for name in LOWER_BOUNDS:
        if name in new and new[name] > old.get(name, 0):
            yield f"`{where}` has {name} {new[name]} now"
    if "pattern" in new and new["pattern"] != old.get("pattern"):
        yield f"`{where}` must match another pattern now"


def unannounced(changes: Sequence[str], changelog: str) -> list[str]:
    """Return the changes whose text in backticks is not in the part of the changelog about the next release."""
    upcoming = changelog.partition("## [Unreleased]")[2].partition("\n## [")[0]
    return [change for change in changes if f"`{change.split('`')[1]}`" not in upcoming]


def main(*arguments: str, root: Path = ROOT) -> int:
    """Check the document of a checkout, and print what is wrong. Return the status of the command."""
    released, current = (root / "openapi" / f"{name}.json" for name in ("released", "openapi"))
    if "--release" in arguments:
        released.write_text(current.read_text())
        return 0
    old, new = (json.loads(file.read_text()) for file in (released, current))
    left = unannounced(incompatible_changes(old, new), (root / "CHANGELOG.md").read_text())
    for change in left:
        print(change)
    if left:
        print(
            "These changes to the API break programs that were written for openapi/released.json. Undo them, or name "
            "each below [Unreleased] in CHANGELOG.md: the text in backticks of its line."
        )
    return bool(left)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
