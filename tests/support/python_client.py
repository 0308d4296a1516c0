"""The calls and records of the Python client, generated from openapi/openapi.json.

`make openapi` writes them; `make check` fails if they are not what the document says.

    python -m tests.support.python_client [--check]
"""

from __future__ import annotations

import json
import keyword
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from plangate.api.record import wire_name

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = ROOT / "sdk" / "python" / "plangate" / "api"
METHODS: Final = ("get", "put", "post", "delete", "patch")
JSON: Final = "application/json"
WIDTH: Final = 96
HEADER: Final = "Generated from openapi/openapi.json by `make openapi`. Do not edit."
AUTHORED: Final = "RuntimeSpec"
"""The schema that programs write with `plangate.spec`: a plain mapping here."""

API_DOCSTRING: Final = '''    """Every operation of the HTTP API, but for streams, as a method: `runtime.api`.

    The fields of a body are arguments; those that are None are left out. Responses are records of
    `plangate.api.models`.

    Example:
        >>> async def spent(runtime):
        ...     report = await runtime.api.read_usage(group_by="agent")
        ...     return [(group.key, group.cost_usd) for group in report.items_]
    """
'''
Schema = Mapping[str, Any]
SCALARS: Final = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}


def snake_case(name: str) -> str:
    """Return the Python name of a field, parameter or operation.

    Raises:
        ValueError: if `plangate.api.record` would not find the field again.
    """
    plain = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
    python = f"{plain}_" if keyword.iskeyword(plain) or hasattr(dict, plain) else plain
    if wire_name(python) != name and "_" not in name:
        raise ValueError(f"the field {name!r} has no snake_case name that leads back to it")
    return python


def type_of(schema: Schema, prefix: str = "") -> str:
    """Return the annotation of a schema. `prefix` is written before the names of models."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if name == "JsonValue":
            return "Any"
        return "dict[str, Any]" if name == AUTHORED else prefix + name
    if "const" in schema or "enum" in schema:
        values = schema.get("enum", [schema.get("const")])
        return f"Literal[{', '.join(map(repr, values))}]"
    variants = schema.get("anyOf", schema.get("oneOf"))
    if variants is None and isinstance(schema.get("type"), list):
        variants = [{**schema, "type": one} for one in schema["type"]]
    if variants is not None:
        members = list(dict.fromkeys(type_of(variant, prefix) for variant in variants))
        return "Any" if "Any" in members else " | ".join(members)
    match schema.get("type"):
        case "array":
            return f"list[{type_of(schema.get('items', {}), prefix)}]"
        case "object":
            values = schema.get("additionalProperties")
            return f"dict[str, {type_of(values, prefix) if isinstance(values, Mapping) else 'Any'}]"
        case str(kind):
            return SCALARS[kind]
    return "Any"


def _optional(kind: str) -> str:
    return kind if kind == "Any" or kind.endswith("None") else f"{kind} | None"


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, Mapping):
        for key, value in node.items():
            if key == "$ref" and "/schemas/" in value:
                yield value.rpartition("/")[2]
            elif key != "mapping":
                yield from _references(value)
    elif isinstance(node, list):
        for item in node:
            yield from _references(item)


def _docstring(text: str, indent: str) -> list[str]:
    """Return the lines of a docstring; its first line is the first paragraph, wrapped."""
    text = text.replace("\\", "\\\\").replace('"""', "'''")
    paragraphs = [
        line
        for paragraph in text.split("\n\n")
        for line in (*textwrap.wrap(" ".join(paragraph.split()), WIDTH - len(indent)), "")
    ][:-1]
    if len(paragraphs) == 1:
        return [f'{indent}"""{paragraphs[0]}"""']
    return [
        f'{indent}"""{paragraphs[0]}',
        *(f"{indent}{line}".rstrip() for line in paragraphs[1:]),
        f'{indent}"""',
    ]


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of the document."""

    method: str
    path: str
    fields: Schema

    @property
    def success(self) -> Schema:
        """Its first successful response."""
        return self.fields["responses"][min(self.fields["responses"])]

    @property
    def media_type(self) -> str:
        return next(iter(self.success["content"]))

    @property
    def parameters(self) -> list[Schema]:
        return [parameter for parameter in self.fields.get("parameters", ()) if "name" in parameter]


class Document:
    """An API document, and the Python that is generated from it."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._schemas: Mapping[str, Schema] = document["components"]["schemas"]
        self._operations = [
            Operation(method, path, item[method])
            for path, item in document["paths"].items()
            for method in METHODS
            if method in item
        ]

    def _closure(self, names: Iterator[str]) -> set[str]:
        """Return the schemas that are needed for these."""
        needed: set[str] = set()
        left = set(names)
        while left:
            name = left.pop()
            if name not in needed | {AUTHORED, "JsonValue", "Problem"}:
                needed.add(name)
                left |= set(_references(self._schemas[name]))
        return needed

    def models(self) -> str:
        """Return the module of records, which responses are made of, and of the parts of requests."""
        successes = (operation.success for operation in self._operations)
        records = self._closure(name for success in successes for name in _references(success))
        bodies = self._closure(
            name
            for operation in self._operations
            for body in (self._body(operation),)
            if body is not None
            for name in _references(body.get("properties", {}))
        )
        lines = [
            f'"""Records of responses, and parts of requests. {HEADER}"""',
            "from __future__ import annotations",
            "from typing import Any, Literal, NotRequired, TypeAlias, TypedDict",
            "from plangate.api.record import Record",
        ]
        for name in sorted(records | bodies):
            if "properties" in self._schemas[name]:
                lines += self._record(name) if name in records else self._part(name)
        for name in sorted(records | bodies):
            if "properties" not in self._schemas[name]:
                schema = self._schemas[name]
                lines += [f"{name}: TypeAlias = {type_of(schema)}"]
                lines += _docstring(schema["description"], "") if "description" in schema else []
        return _formatted(lines)

    def _record(self, name: str) -> Iterator[str]:
        schema = self._schemas[name]
        yield f"class {name}(Record):"
        yield from _docstring(schema.get("description", f"A {name}."), "    ")
        yield "    __slots__ = ()"
        for field, kind in schema["properties"].items():
            annotation = type_of(kind)
            if field not in schema.get("required", ()):
                annotation = _optional(annotation)
            yield f"    {snake_case(field)}: {annotation}"
            yield from _docstring(kind["description"], "    ") if "description" in kind else ()

    def _part(self, name: str) -> Iterator[str]:
        schema = self._schemas[name]
        yield f"class {name}(TypedDict):"
        yield from _docstring(schema.get("description", f"A {name}."), "    ")
        for field, kind in schema["properties"].items():
            annotation = type_of(kind)
            required = field in schema.get("required", ())
            yield f"    {field}: {annotation if required else f'NotRequired[{annotation}]'}"
            yield from _docstring(kind["description"], "    ") if "description" in kind else ()

    def _body(self, operation: Operation) -> Schema | None:
        """Return the schema of a JSON body, but for that of a runtime."""
        body = operation.fields.get("requestBody", {}).get("content", {}).get(JSON)
        if body is None:
            return None
        name = body["schema"]["$ref"].rpartition("/")[2]
        return None if name == AUTHORED else self._schemas[name]

    def calls(self) -> str:
        """Return the module with a method for each operation, but for streams."""
        lines = [
            f'"""The calls of the API. {HEADER}"""',
            "from __future__ import annotations",
            "from collections.abc import Mapping",
            "from typing import Any, Literal, Unpack",
            "from plangate.api import models",
            "from plangate.api.requests import UNSET, Content, RequestOptions, Requests, present, present_json",
            "from plangate.client import file_segments, segment",
            "class Api(Requests):",
            API_DOCSTRING,
        ]
        for operation in self._operations:
            if operation.media_type != "text/event-stream":
                lines += self._call(operation)
        return _formatted(lines)

    def _call(self, operation: Operation) -> Iterator[str]:
        signature, sent = ["self"], []
        path = operation.path
        for parameter in operation.parameters:
            if parameter["in"] == "path":
                name = snake_case(parameter["name"])
                signature.append(f"{name}: {type_of(parameter['schema'], 'models.')}")
                quote = "file_segments" if name == "path" else "segment"
                path = path.replace(f"{{{parameter['name']}}}", f"{{{quote}({name})}}")
        content = operation.fields.get("requestBody", {}).get("content", {})
        body = self._body(operation)
        if JSON in content and body is None:
            signature.append("spec: Mapping[str, Any]")
            sent.append("body=spec")
        elif body is None and content:
            signature.append("content: Content")
            sent.append("data=content, media_type=media_type")
        keywords = ["media_type: str | None = None"] if content and JSON not in content else []
        query = [parameter for parameter in operation.parameters if parameter["in"] == "query"]
        if body is not None:
            required = set(body.get("required", ()))
            fields = sorted(body["properties"], key=lambda field: field not in required)
            keywords += [
                self._keyword(field, body["properties"][field], field in required) for field in fields
            ]
            json_fields = {field for field in fields if _takes_any_json(body["properties"][field])}
            sent.append(f"body={_mapping(fields, required, json_fields)}")
        if query:
            required = {parameter["name"] for parameter in query if parameter.get("required")}
            keywords += [self._keyword(p["name"], p["schema"], p["name"] in required) for p in query]
            sent.append(f"params={{{_pairs(p['name'] for p in query)}}}")
        names = [part.partition(":")[0] for part in (*signature, *keywords)]
        if len(set(names)) != len(names):
            raise ValueError(f"{operation.fields['operationId']} has two arguments of one name")
        keyed = any(
            p.get("$ref", "").endswith("/Idempotency-Key") for p in operation.fields.get("parameters", ())
        )
        if operation.method == "put" and keyed:
            sent.append("keyed=True")
        yield from self._method(
            operation, f'f"{path}"' if "{" in path else f'"{path}"', signature, keywords, sent
        )

    @staticmethod
    def _keyword(name: str, schema: Schema, required: bool) -> str:
        kind = type_of(schema, "models.").replace("dict[str, Any]", "Mapping[str, Any]")
        if required:
            return f"{snake_case(name)}: {kind}"
        return f"{snake_case(name)}: {_optional(kind)} = {'UNSET' if _takes_any_json(schema) else None}"

    def _method(
        self,
        operation: Operation,
        path: str,
        signature: Sequence[str],
        keywords: Sequence[str],
        sent: Sequence[str],
    ) -> Iterator[str]:
        media_type, schema = next(iter(operation.success["content"].items()))
        raw = media_type == "application/octet-stream"
        returned = "bytes" if raw else type_of(schema["schema"], "models.")
        arguments = [
            *signature,
            *(["*", *keywords] if keywords else []),
            "**request_options: Unpack[RequestOptions]",
        ]
        yield f"    async def {snake_case(operation.fields['operationId'])}({', '.join(arguments)}) -> {returned}:"
        summary = f"{operation.fields['summary'].removesuffix('.')}."
        yield from _docstring(
            "\n\n".join(filter(None, (summary, operation.fields.get("description")))), "        "
        )
        accept = (
            ["accept='*/*', raw=True"] if raw else [f"accept={media_type!r}"] if media_type != JSON else []
        )
        method = f'"{operation.method.upper()}"'
        sent = [returned, method, path, *sent, *accept, "**request_options"]
        yield f"        response: {returned} = await self._call({', '.join(sent)})"
        yield "        return response"


def _mapping(fields: Sequence[str], required: set[str], json_fields: set[str]) -> str:
    """Return the expression of a body, without the optional fields that are None, or UNSET if they take any JSON."""
    optional = _pairs(field for field in fields if field not in required | json_fields)
    if not required and not json_fields:
        return f"present({{{optional}}})"
    pairs = [_pairs(field for field in fields if field in required)]
    if optional:
        pairs.append(f"**present({{{optional}}})")
    if optional_json := _pairs(field for field in fields if field in json_fields - required):
        pairs.append(f"**present_json({{{optional_json}}})")
    return f"{{{', '.join(filter(None, pairs))}}}"


def _takes_any_json(schema: Schema) -> bool:
    return any(
        variant.get("$ref", "").endswith("/JsonValue") for variant in (schema, *schema.get("anyOf", ()))
    )


def _pairs(fields: Iterable[str]) -> str:
    """Return the items of a dict display, from wire names to arguments."""
    return ", ".join(f'"{field}": {snake_case(field)}' for field in fields)


def _formatted(lines: Sequence[str]) -> str:
    ruff = [str(Path(sys.executable).with_name("ruff"))]
    name = ["--stdin-filename", str(PACKAGE / "generated.py")]
    text = "\n".join(lines) + "\n"
    for command in (["check", "--fix-only", "--quiet", *name, "-"], ["format", *name, "-"]):
        done = subprocess.run([*ruff, *command], input=text, capture_output=True, text=True, check=True)
        text = done.stdout
    return text


def generate(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the text of the generated modules by their names."""
    python = Document(document)
    return {"calls.py": python.calls(), "models.py": python.models()}


def main(*arguments: str) -> int:
    modules = generate(json.loads((ROOT / "openapi" / "openapi.json").read_text()))
    if "--check" in arguments:
        stale = [name for name, text in modules.items() if (PACKAGE / name).read_text() != text]
        if stale:
            print(
                f"{', '.join(stale)} of sdk/python/plangate/api: not what the document says. Run `make openapi`."
            )
        return bool(stale)
    for name, text in modules.items():
        (PACKAGE / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
