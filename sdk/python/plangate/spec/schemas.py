"""JSON Schema of whatever an author writes down as a schema, and what is wrong with one.

`normalize_schema` stands behind tools, plans and references: a mapping, a model class or a type hint comes
out as plain JSON Schema. `check_schema` says why the service would not take a schema. Nothing is ever
fetched: references that leave the document are refused before a validator sees them.
"""

from __future__ import annotations

import math
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import islice
from types import GenericAlias, UnionType
from typing import Any, Final, NewType, NotRequired, Required, get_args, get_origin
from urllib.parse import unquote

import jsonschema_rs
from pydantic import BaseModel, TypeAdapter
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from typing_extensions import TypeAliasType

from plangate.json_pointer import json_pointer
from plangate.spec.patterns import COSTLY_PATTERNS, costly_pattern, patterns_cost
from plangate.spec.schema_walk import KEYWORDS, MAP_KEYWORDS, REFERENCE_KEYWORDS, walk_schemas

_ACCEPTED_FORMS: Final = (
    "a schema is a JSON Schema mapping, a Pydantic model class, a mapping of field name to type, "
    "or a type hint"
)
_HINTS: Final = (
    type,
    GenericAlias,
    UnionType,
    NewType,
    TypeAliasType,
    getattr(typing, "TypeAliasType", TypeAliasType),  # from Python 3.12 on not the same class
)

Path = tuple[str, ...]


def normalize_schema(value: Any) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of `value`.

    The value is one of

    - a JSON Schema mapping, which comes back as a plain copy. It is empty or has a keyword of JSON Schema;
    - a Pydantic model class, also a recursive one (its definitions are in `$defs`, and the root stays an object
      schema that can be read without following a reference);
    - a mapping of field name to type hint, nested at will. Every field is required unless its hint is
      `NotRequired[...]` or carries a default. A value may also be a JSON Schema without references. A
      `description` that is a string describes the object; one that is a type is a field;
    - any other type hint that Pydantic can export.

    Args:
        value: One of these.

    Raises:
        TypeError: for anything else, naming the place and the reason.

    Example:
        >>> from typing import NotRequired
        >>> normalize_schema({"city": str, "days": NotRequired[int]})["required"]
        ['city']
    """
    try:
        if isinstance(value, Mapping):
            if _holds_hint(value):
                return _fields_schema(value)
            plain = _plain_object(value, ())
            _require_keyword(plain)
            return plain
        if value is not BaseModel and _is_hint(value):
            return _inline_root(TypeAdapter(value).json_schema())
    except RecursionError:
        raise TypeError(f"{_ACCEPTED_FORMS}; this one contains itself or is nested too deeply") from None
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        reason = str(error).split("\n", 1)[0]
        raise TypeError(f"{_short(value)} has no JSON Schema: {reason}") from error
    raise TypeError(f"{_ACCEPTED_FORMS}, not {_short(value)}")


def check_schema(schema: Any) -> list[tuple[str, str]]:
    """Return why `schema` cannot be used, as (JSON pointer within the schema, message); empty if it can.

    Reported are: anything that is not valid JSON Schema of its dialect (`$schema`, 2020-12 without one),
    every `$ref`, `$dynamicRef` or `$recursiveRef` that leaves the document or leads nowhere in it, dialects
    that are not known, and patterns that need lookaround or back-references (matching takes linear time).

    Args:
        schema: A JSON Schema as plain data: an object or a boolean.

    Example:
        >>> check_schema({"properties": {"a": {"$ref": "https://example.com/a.json"}}})[0][0]
        '/properties/a/$ref'
    """
    if isinstance(schema, bool):
        return []
    if not isinstance(schema, Mapping):
        return [("", f"a JSON Schema is an object or a boolean, not {_short(schema)}")]
    try:
        plain = _plain_object(schema, ())
        problems = list(_reference_problems(plain))
    except TypeError as error:
        return [("", str(error))]
    except RecursionError:
        return [("", "the schema is nested too deeply")]
    if problems:
        return problems
    return _meta_problems(plain) or _pattern_problems(plain) or _compile_problems(plain)


# From what authors write to JSON Schema.


def _is_hint(value: Any) -> bool:
    return isinstance(value, _HINTS) or get_origin(value) is not None


def _holds_hint(fields: Mapping[Any, Any]) -> bool:
    """Return whether a mapping is one of fields: a JSON Schema contains no type hints."""
    return any(_is_hint(v) or (isinstance(v, Mapping) and _holds_hint(v)) for v in fields.values())


def _fields_schema(fields: Mapping[Any, Any]) -> dict[str, Any]:
    adapters: dict[Path, TypeAdapter[Any]] = {}
    _collect(fields, (), adapters)
    schemas, shared = TypeAdapter.json_schemas(
        [(path, "validation", adapter) for path, adapter in adapters.items()]
    )
    leaves = {path: schema for (path, _), schema in schemas.items()}
    return {**_object(fields, (), leaves), **({"$defs": shared["$defs"]} if "$defs" in shared else {})}


def _collect(fields: Mapping[Any, Any], path: Path, into: dict[Path, TypeAdapter[Any]]) -> None:
    """Build the schema of all hints at once, so that models with the same name get separate definitions."""
    for name, hint in fields.items():
        if not isinstance(name, str):
            raise TypeError(f"field names are strings, not {_short(name)}{_within(path)}")
        if _is_hint(hint):
            try:
                adapter = into[*path, name] = TypeAdapter(_unwrap(hint))
                adapter.json_schema()
            except (PydanticUserError, PydanticUndefinedAnnotation) as error:
                reason = str(error).split("\n", 1)[0]
                raise TypeError(f"field {'.'.join((*path, name))!r} has no JSON Schema: {reason}") from error
        elif isinstance(hint, Mapping) and _holds_hint(hint):
            _collect(hint, (*path, name), into)


def _object(fields: Mapping[str, Any], path: Path, leaves: Mapping[Path, dict[str, Any]]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    required: list[str] = []
    schema: dict[str, Any] = {"type": "object"}
    for name, hint in fields.items():
        here = (*path, name)
        if name == "description" and isinstance(hint, str):
            schema["description"] = hint
            continue
        if here in leaves:
            properties[name] = leaves[here]
        elif isinstance(hint, Mapping):
            properties[name] = (
                _object(hint, here, leaves) if _holds_hint(hint) else _embed_definitions(hint, here)
            )
        else:
            raise TypeError(f"field {'.'.join(here)!r} is {_short(hint)}, not a type")
        if get_origin(hint) is not NotRequired and "default" not in properties[name]:
            required.append(name)
    return {**schema, "properties": properties, **({"required": required} if required else {})}


def _embed_definitions(schema: Mapping[Any, Any], path: Path) -> dict[str, Any]:
    plain = _plain_object(schema, path)
    if any(True for _ in _references(plain)):
        raise TypeError(
            f"field {'.'.join(path)!r} is a JSON Schema with references, which would lead elsewhere inside "
            f"another schema: write it without $ref, or as a Pydantic model"
        )
    return plain


def _unwrap(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) in (NotRequired, Required) else hint


def _inline_root(schema: dict[str, Any]) -> dict[str, Any]:
    """Inline the root: a recursive model exports a bare `$ref`, and readers need `type` and `properties`."""
    target = schema.get("$ref", "")
    if not target.startswith("#/$defs/"):
        return schema
    siblings = {name: member for name, member in schema.items() if name not in ("$ref", "$defs")}
    definitions = schema["$defs"]
    return {**definitions[target.removeprefix("#/$defs/")], **siblings, "$defs": definitions}


def _plain_object(value: Mapping[Any, Any], path: Path) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for name, member in value.items():
        if not isinstance(name, str):
            raise TypeError(f"keys of a JSON Schema are strings, not {_short(name)}{_within(path)}")
        plain[name] = _plain(member, (*path, name))
    return plain


def _require_keyword(schema: Mapping[str, Any]) -> None:
    """Raise TypeError if a mapping without type hints is no JSON Schema either, which would accept every value."""
    if not schema or any(keyword in KEYWORDS or keyword.startswith("x-") for keyword in schema):
        return
    name, member = next(iter(schema.items()))
    raise TypeError(
        f"{_ACCEPTED_FORMS}; this mapping has no keyword of JSON Schema, and {json_pointer((name,))} is "
        f"{_short(member)}, not a type"
    )


def _plain(value: Any, path: Path) -> Any:
    if isinstance(value, Mapping):
        return _plain_object(value, path)
    if isinstance(value, list | tuple):
        return [_plain(member, (*path, str(index))) for index, member in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        raise TypeError(f"{value} is not JSON{_within(path)}")
    if value is None or type(value) in (str, bool, int, float):
        return value
    raise TypeError(f"{_short(value)} is not JSON{_within(path)}; {_ACCEPTED_FORMS}")


# What is wrong with a JSON Schema.

_MAX_PROBLEMS: Final = 50
_MESSAGE_CHARS: Final = 200
_EXPLAINED_ENTRIES: Final = 200  # of one list or mapping in a schema that is not valid
_NOT_A_SCHEMA: Final = "it is not a valid JSON Schema"
_VALUE_CHARS: Final = 60  # of a value that a message repeats
_ANCHORS: Final = ("$anchor", "$dynamicAnchor", "$id", "id")  # an $id like "#name" was draft 7's anchor
_DIALECTS: Final = {
    "json-schema.org/draft-04/schema": jsonschema_rs.Draft4Validator,
    "json-schema.org/draft-06/schema": jsonschema_rs.Draft6Validator,
    "json-schema.org/draft-07/schema": jsonschema_rs.Draft7Validator,
    "json-schema.org/draft/2019-09/schema": jsonschema_rs.Draft201909Validator,
    "json-schema.org/draft/2020-12/schema": jsonschema_rs.Draft202012Validator,
}


def _references(root: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """(pointer, keyword, target) of every reference."""
    for pointer, schema in walk_schemas(root):
        for keyword in REFERENCE_KEYWORDS:
            if isinstance(schema, Mapping) and isinstance(target := schema.get(keyword), str):
                yield f"{pointer}/{keyword}", keyword, target


def _reference_problems(root: dict[str, Any]) -> Iterator[tuple[str, str]]:
    places = dict(walk_schemas(root))
    objects = {pointer: schema for pointer, schema in places.items() if isinstance(schema, Mapping)}
    anchors = {str(schema.get(key)).removeprefix("#") for schema in objects.values() for key in _ANCHORS}
    references = list(_references(root))
    for pointer, keyword, target in references:
        name = unquote(target[1:])
        if not target.startswith("#"):
            yield (
                pointer,
                f"{keyword} {target!r} leaves the document and nothing is fetched: put that schema into "
                f"$defs and refer to '#/$defs/...'",
            )
        elif name not in (places if name.startswith("/") else anchors | {""}):
            yield pointer, f"{keyword} {target!r} leads to no schema in this document"
    for pointer, schema in objects.items():
        dialect, inner = schema.get("$schema"), schema.get("$id")
        if isinstance(dialect, str) and _dialect(dialect) is None:
            yield f"{pointer}/$schema", f"the dialect {dialect!r} is not known: use draft 2020-12"
        if pointer and references and isinstance(inner, str) and not inner.startswith("#"):
            yield (
                f"{pointer}/$id",
                "a schema with references holds no $id below its root: '#' would not mean the document there",
            )


def _dialect(uri: str) -> str | None:
    name = uri.rstrip("#").removeprefix("https://").removeprefix("http://")
    return name if name in _DIALECTS else None


def _meta_problems(schema: dict[str, Any]) -> list[tuple[str, str]]:
    uri = schema.get("$schema")
    name = _dialect(uri) if isinstance(uri, str) else None
    meta = _meta_validator(name or "json-schema.org/draft/2020-12/schema")
    if meta.is_valid(schema):  # cheap, where errors are built with copies of what they are about
        return []
    located = (
        (pointer + below, message)
        for pointer, level in _invalid_levels(meta, schema)
        for below, message in _level_problems(meta, level)
    )
    return list(islice(located, _MAX_PROBLEMS)) or [("", _NOT_A_SCHEMA)]


def _invalid_levels(
    meta: jsonschema_rs.Validator, root: dict[str, Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return the pointer and level of every invalid schema, without schemas nested in it.

    The validator builds an error with a copy of its value for each level around a mistake, and all of them before the
    first one is seen: 1 MiB of nested lists took 19 s. One level at a time takes as long as it has entries.
    """
    for pointer, schema in walk_schemas(root):
        if isinstance(schema, Mapping) and not meta.is_valid(level := _level(schema)):
            yield pointer, level


def _level(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema with an empty schema in the place of each subschema."""
    level: dict[str, Any] = {}
    for keyword, member in schema.items():
        if keyword in MAP_KEYWORDS and isinstance(member, dict):
            level[keyword] = {name: _outline(inner) for name, inner in member.items()}
        elif isinstance(member, list):
            level[keyword] = [_outline(inner) for inner in member]
        else:
            level[keyword] = _outline(member)
    return level


def _outline(value: Any) -> Any:
    """Return a container without its content, except the texts of a list: `dependencies` has lists of names."""
    if isinstance(value, dict):
        return {}
    if isinstance(value, list):
        return [{} if isinstance(i, dict) else [] if isinstance(i, list) else i for i in value]
    return value


def _first_entries(member: Any) -> Any:
    if isinstance(member, list):
        return member[:_EXPLAINED_ENTRIES]
    if isinstance(member, dict):  # schemas are empty here, and right
        wrong = ((name, inner) for name, inner in member.items() if inner != {})
        return dict(islice(wrong, _EXPLAINED_ENTRIES))
    return member


def _level_problems(meta: jsonschema_rs.Validator, level: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the problems of one level. In long lists and mappings, only the first entries are explained."""
    short = {keyword: _first_entries(member) for keyword, member in islice(level.items(), _EXPLAINED_ENTRIES)}
    errors = islice(meta.iter_errors(short), _MAX_PROBLEMS)
    located = [
        (json_pointer(error.instance_path), _truncate(error.message, _MESSAGE_CHARS)) for error in errors
    ]
    return list(dict.fromkeys(located)) or [("", _NOT_A_SCHEMA)]


@cache
def _meta_validator(dialect: str) -> jsonschema_rs.Validator:
    scheme = "https" if "/draft/" in dialect else "http"
    return _DIALECTS[dialect]({"$ref": f"{scheme}://{dialect}"}, offline=True)


def schema_pattern_cost(schema: Any) -> int:
    """Return the cost of compiling the patterns of a JSON Schema."""
    return patterns_cost(walk_schemas(schema))


def _pattern_problems(schema: dict[str, Any]) -> list[tuple[str, str]]:
    pointer = costly_pattern(walk_schemas(schema))
    return [] if pointer is None else [(pointer, COSTLY_PATTERNS)]


def _compile_problems(schema: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what only the compiler finds, such as a pattern that is not matched in linear time."""
    try:
        jsonschema_rs.validator_cls_for(schema)(
            schema, validate_formats=False, pattern_options=jsonschema_rs.RegexOptions(), offline=True
        )
    except jsonschema_rs.ValidationError as error:
        message = _truncate(error.message, _MESSAGE_CHARS)
        if message.endswith('is not a "regex"'):
            message = (
                f"{message} that is matched in linear time: lookaround and back-references are not supported"
            )
        return [(json_pointer(error.instance_path), message)]
    except ValueError as error:
        return [("", f"the schema cannot be compiled: {error}")]
    return []


def _within(path: Path) -> str:
    return f" (in {'.'.join(path)!r})" if path else ""


def _short(value: Any) -> str:
    return _truncate(value.__name__ if isinstance(value, type) else repr(value), _VALUE_CHARS)


def _truncate(text: str, chars: int) -> str:
    """Return the text, without its middle if it is longer than `chars`."""
    half = chars // 2 - 1
    return text if len(text) <= chars else f"{text[:half]} … {text[-half:]}"
