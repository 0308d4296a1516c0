"""The pages of the HTTP API, from `openapi/openapi.json`: each operation with its request in curl, Python and TypeScript.

The examples are those of the document. A program in three languages is three fences in a row, which the site shows side by
side.
"""

from __future__ import annotations

import json
import keyword
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final
from urllib.parse import quote, urlencode

METHODS: Final = ("get", "put", "post", "patch", "delete")
JSON: Final = "application/json"
STREAM: Final = "text/event-stream"
FOLDER: Final = "docs/api"
WIDTH: Final = 100
EXAMPLE_BODY: Final = "notes.txt"
"""The file whose bytes the examples upload."""

PYTHON_SETUP: Final = 'from plangate import connect\n\nruntime = connect("desk", tenant="local")'
TYPESCRIPT_SETUP: Final = (
    'import { connect, listApprovals } from "plangate"; // and the other operations\n\n'
    'const url = process.env["PLANGATE_URL"] ?? "http://127.0.0.1:8700";\n'
    'const plangate = connect({ url, key: process.env["PLANGATE_API_KEY"] ?? "" });'
)

STREAMS: Final = {
    "streamNewQuery": (
        'async for event in runtime.query("Refund order o-17.", "customer-3"):\n    print(event.type)',
        'for await (const event of plangate.startQuery({ runtime: "desk", prompt: "Refund order o-17." })) {\n'
        "  console.log(event.type);\n}",
    ),
    "streamQuery": (
        'async for event in runtime.query(None, None, resume="{query_id}"):\n    print(event.type)',
        'for await (const event of plangate.stream("{query_id}")) {\n  console.log(event.type);\n}',
    ),
    "streamEvents": (
        "page = await runtime.api.list_events()\n"
        "while True:  # the library follows queries; all events of a tenant come in pages\n"
        "    for event in page.events:\n"
        "        print(event)\n"
        "    page = await runtime.api.list_events(after=page.cursor)",
        "for await (const event of plangate.streamTenant()) {\n  console.log(event.type);\n}",
    ),
    "streamToolCalls": (
        "async with create_runtime(system) as runtime:  # claims and answers the calls of its tools\n"
        "    await asyncio.Event().wait()",
        'const server = plangate.serve({ tools: { refund: () => "refunded" } });',
    ),
}
"""Streams have functions of their own in the clients."""

ELSEWHERE: Final = {"Event": "[event](../events.md)", "JsonValue": "any JSON", "Problem": "problem"}
"""Schemas that have no section: what stands for their names."""

Schema = Mapping[str, Any]
NO_CONTENT: Final[tuple[str, Schema]] = ("", {})


def pages(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the pages by their file: one for each tag, after the index."""
    operations = [
        Operation(document, method, path, item[method])
        for path, item in document["paths"].items()
        for method in METHODS
        if method in item
    ]
    by_tag = {tag["name"]: [o for o in operations if o.tag == tag["name"]] for tag in document["tags"]}
    files = {f"{FOLDER}/README.md": _index(document, by_tag)}
    for tag in document["tags"]:
        files[f"{FOLDER}/{_slug(tag['name'])}.md"] = _page(tag, by_tag[tag["name"]])
    return files


def _index(document: Mapping[str, Any], by_tag: Mapping[str, list[Operation]]) -> str:
    rows = [
        f"| [{_capital(name)}]({_slug(name)}.md) | {', '.join(f'`{o.method.upper()} {o.path}`' for o in operations)} |"
        for name, operations in by_tag.items()
    ]
    return "\n".join(
        [
            "# HTTP API",
            "",
            document["info"]["description"],
            "",
            "The examples use `PLANGATE_URL` and `PLANGATE_API_KEY` from the environment. In Python, `runtime` is "
            "an [open runtime](../guides/runtime.md); in TypeScript, `plangate` is a "
            "[connection](../guides/clients.md):",
            "",
            _fence("python", PYTHON_SETUP),
            _fence("ts", TYPESCRIPT_SETUP),
            "## Operations",
            "",
            *_table(("group", "operations"), rows),
        ]
    )


def _page(tag: Mapping[str, Any], operations: list[Operation]) -> str:
    guide = tag.get("externalDocs", {}).get("url", "")
    more = f" See [the guide](../{guide.removeprefix('/')}.md)." if guide else ""
    parts = [f"# {_capital(tag['name'])}\n", f"{tag['description']}{more}\n"]
    for operation in operations:
        parts += operation.markdown()
    types = _types(operations)
    if types:
        parts.append("## Types\n")
        parts += [_type(name, schema) for name, schema in types.items()]
    return "\n".join(parts)


def _types(operations: list[Operation]) -> dict[str, Schema]:
    """Return the schemas that bodies and responses are made of, by name."""
    found: dict[str, Schema] = {}
    left = [name for operation in operations for name in operation.schemas()]
    while left:
        name = left.pop()
        if name not in found and name not in ELSEWHERE:
            found[name] = operations[0].document["components"]["schemas"][name]
            left += _references(found[name])
    return dict(sorted(found.items()))


def _type(name: str, schema: Schema) -> str:
    """Return the section of a schema: its fields, or what it is one of."""
    parts = [f"### {name}\n"]
    if "description" in schema:
        parts.append(" ".join(schema["description"].split()) + "\n")
    parts.append(_fields("field", schema) if "properties" in schema else f"{_capital(_kind(schema))}.\n")
    return "\n".join(parts)


def _fields(heading: str, schema: Schema) -> str:
    """Return the table of the fields of an object, the required ones first."""
    required = set(schema.get("required", ()))
    rows = [
        f"| `{name}` | {_kind(kind)}{', required' if name in required else ''} | {_cell(kind.get('description', ''))} |"
        for name, kind in sorted(schema["properties"].items(), key=lambda item: item[0] not in required)
    ]
    return "\n".join(_table((heading, "type", "meaning"), rows)) + "\n"


def _references(node: Any) -> Iterator[str]:
    """Return the names of the schemas that a part of the document refers to."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            if key == "$ref" and "/schemas/" in value:
                yield value.rpartition("/")[2]
            elif key not in ("mapping", "example", "examples"):
                yield from _references(value)
    elif isinstance(node, list):
        for item in node:
            yield from _references(item)


@dataclass(frozen=True)
class Operation:
    """One operation of the document."""

    document: Mapping[str, Any]
    method: str
    path: str
    fields: Schema

    @property
    def tag(self) -> str:
        return str(self.fields["tags"][0])

    @property
    def name(self) -> str:
        return str(self.fields["operationId"])

    def markdown(self) -> Iterator[str]:
        """Return the parts of its section."""
        yield f"## {self.fields['summary'].removesuffix('.')}\n"
        yield f"`{self.method.upper()} {self.path}`\n"
        if "description" in self.fields:
            yield self.fields["description"] + "\n"
        yield from self._parameters()
        yield from self._body_fields()
        yield _fence("bash", self.curl())
        yield _fence("python", self.python())
        yield _fence("ts", self.typescript())
        yield from self._response()

    def _parameters(self) -> Iterator[str]:
        rows = [
            f"| `{p['name']}` | {p['in']} | {_kind(p['schema'])}{', required' if p.get('required') else ''} "
            f"| {_cell(p.get('description', ''))} |"
            for p in self.parameters
        ]
        if rows:
            yield "\n".join(_table(("parameter", "in", "type", "meaning"), rows)) + "\n"

    def _body_fields(self) -> Iterator[str]:
        schema = self._body_schema
        if schema is not None and "properties" in schema:
            yield _fields("field of the body", schema)

    def schemas(self) -> Iterator[str]:
        """Return the names of the schemas of its body's fields, and of its response."""
        if self._body_schema is not None:
            yield from _references(self._body_schema.get("properties", {}))
        yield from _references(self._success[1].get("content", {}))

    def _response(self) -> Iterator[str]:
        status, response = self._success
        content = response.get("content", {})
        problems = [f"`{code}`" for code in self.fields["responses"] if "400" <= code < "600"]
        ends = f" Problems: {', '.join(problems)}." if problems else ""
        media_type, shown = next(iter(content.items()), NO_CONTENT)
        example = _example(shown)
        kind = f": {_kind(shown['schema'])}" if media_type == JSON else ""
        yield f"Response `{status}`{f', `{media_type}`' if media_type else ''}{kind}.{ends}\n"
        if example is not None:
            yield _fence("json" if media_type == JSON else "text", _literal(example, media_type))

    # -- the request in three languages

    def curl(self) -> str:
        """Return the request as a command."""
        path = self.path
        for name, value in self._path_values.items():
            path = path.replace(f"{{{name}}}", quote(str(value), safe="/" if name == "path" else ""))
        query = f"?{urlencode(self._query_values, doseq=True)}" if self._query_values else ""
        lines = [f'curl -sS "$PLANGATE_URL{path}{query}"']
        if self.method not in ("get", "post") or (self.method == "post" and not self._content):
            lines.append(f"-X {self.method.upper()}")
        if self.fields.get("security", True):
            lines.append('-H "Authorization: Bearer $PLANGATE_API_KEY"')
        if self._body is not None:
            body = json.dumps(self._body, ensure_ascii=False, indent=2).replace("'", "'\\''")
            lines.append(f"--json '{body}'")
        elif self._content:
            lines += ['-H "Content-Type: text/plain"', f"--data-binary @{EXAMPLE_BODY}"]
        if self._is_stream:
            lines.append("-N")
        return " \\\n  ".join(lines)

    def python(self) -> str:
        """Return the request as a call of the Python library."""
        if self._is_stream:
            return STREAMS[self.name][0].replace("{query_id}", self._path_values.get("query_id", ""))
        arguments = [_python(value) for value in self._path_values.values()]
        if self._body is not None and self._is_spec:
            arguments.append(_python(self._body))
        elif self._body is not None:
            arguments += [f"{_snake_case(name)}={_python(value)}" for name, value in self._body.items()]
        elif self._content:
            arguments += [f'Path("{EXAMPLE_BODY}").read_bytes()', 'media_type="text/plain"']
        arguments += [f"{_snake_case(name)}={_python(value)}" for name, value in self._query_values.items()]
        return _wrapped(
            f"response = await runtime.api.{_snake_case(self.name)}(", arguments, ")", trailing=","
        )

    def typescript(self) -> str:
        """Return the request as a call of the TypeScript client."""
        if self._is_stream:
            return STREAMS[self.name][1].replace("{query_id}", self._path_values.get("query_id", ""))
        options = ["client: plangate.client"]
        if self._path_values:
            options.append(f"path: {_typescript(self._path_values)}")
        if self._query_values:
            options.append(f"query: {_typescript(self._query_values)}")
        if self._body is not None:
            options.append(f"body: {_typescript(self._body)}")
        elif self._content:
            options.append('body: new Blob(["Meet at noon."], { type: "text/plain" })')
        return _wrapped(f"const {{ data, error }} = await {self.name}({{ ", options, " });", trailing=",")

    # -- what the document says

    @cached_property
    def parameters(self) -> list[Schema]:
        """Return the parameters of this operation alone, without those that many have."""
        return [parameter for parameter in self.fields.get("parameters", ()) if "name" in parameter]

    @cached_property
    def _path_values(self) -> dict[str, Any]:
        return {p["name"]: self._value(p) for p in self.parameters if p["in"] == "path"}

    @cached_property
    def _query_values(self) -> dict[str, Any]:
        return {
            p["name"]: self._value(p) for p in self.parameters if p["in"] == "query" and p.get("required")
        }

    @property
    def _success(self) -> tuple[str, Schema]:
        """Return the status and the first successful response."""
        status = min(self.fields["responses"])
        return status, self._resolve(self.fields["responses"][status])

    @property
    def _content(self) -> Mapping[str, Any]:
        content: Mapping[str, Any] = self.fields.get("requestBody", {}).get("content", {})
        return content

    @cached_property
    def _body(self) -> Any:
        return _example(self._content[JSON]) if JSON in self._content else None

    @property
    def _body_schema(self) -> Schema | None:
        return self._resolve(self._content[JSON]["schema"]) if JSON in self._content else None

    @property
    def _is_spec(self) -> bool:
        return str(self._content[JSON]["schema"].get("$ref", "")).endswith("/RuntimeSpec")

    @property
    def _is_stream(self) -> bool:
        return any(STREAM in self._resolve(r).get("content", {}) for r in self.fields["responses"].values())

    def _value(self, parameter: Schema) -> Any:
        value = _example(parameter)
        return value if value is not None else parameter["schema"].get("example", parameter["name"])

    def _resolve(self, schema: Schema) -> Schema:
        if "$ref" not in schema:
            return schema
        found: Any = self.document
        for part in schema["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        return self._resolve(found)


def _example(owner: Mapping[str, Any]) -> Any:
    """Return the first example of a parameter or a content, or None."""
    if "examples" in owner and isinstance(owner["examples"], Mapping):
        return next(iter(owner["examples"].values()))["value"]
    return owner.get("example")


def _literal(example: Any, media_type: str) -> str:
    return _compact(example) if media_type == JSON else str(example).rstrip("\n")


def _compact(value: Any, indent: int = 0) -> str:
    """Return JSON with what is short on one line."""
    line = json.dumps(value, ensure_ascii=False)
    if len(line) + indent <= WIDTH or not isinstance(value, dict | list) or not value:
        return line
    inner = " " * (indent + 2)
    if isinstance(value, list):
        items = [inner + _compact(item, indent + 2) for item in value]
        return "[\n" + ",\n".join(items) + "\n" + " " * indent + "]"
    items = [f"{inner}{json.dumps(name)}: {_compact(item, indent + 2)}" for name, item in value.items()]
    return "{\n" + ",\n".join(items) + "\n" + " " * indent + "}"


def _python(value: Any) -> str:
    return _layout(value, {True: "True", False: "False", None: "None"}, bare_keys=False)


def _typescript(value: Any) -> str:
    return _layout(value, {True: "true", False: "false", None: "null"}, bare_keys=True)


def _layout(value: Any, words: Mapping[Any, str], *, bare_keys: bool, indent: int = 0) -> str:
    """Return a value as a literal of a language, with what is short on one line."""
    if value is None or isinstance(value, bool):
        return words[value]
    if not isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    opening, closing = ("{", "}") if isinstance(value, dict) else ("[", "]")
    if isinstance(value, dict):
        items = [
            f"{name if bare_keys and name.isidentifier() else json.dumps(name, ensure_ascii=False)}: "
            f"{_layout(item, words, bare_keys=bare_keys, indent=indent + 1)}"
            for name, item in value.items()
        ]
    else:
        items = [_layout(item, words, bare_keys=bare_keys, indent=indent + 1) for item in value]
    pad = " " if bare_keys and isinstance(value, dict) and items else ""
    line = f"{opening}{pad}{', '.join(items)}{pad}{closing}"
    if len(line) + 4 * indent <= WIDTH - 20 and "\n" not in line:
        return line
    body = textwrap.indent(",\n".join(items), "  " if bare_keys else "    ")
    return f"{opening}\n{body},\n{closing}"


def _wrapped(opening: str, arguments: list[str], closing: str, *, trailing: str) -> str:
    line = opening + ", ".join(arguments) + closing
    if len(line) <= WIDTH and "\n" not in line:
        return line
    body = textwrap.indent(",\n".join(arguments), "    " if closing == ")" else "  ")
    return f"{opening.rstrip()}\n{body}{trailing}\n{closing.strip()}"


def _kind(schema: Schema) -> str:
    """Return the type of a value in one word or two."""
    if "$ref" in schema:
        name = str(schema["$ref"].rpartition("/")[2])
        return ELSEWHERE.get(name, f"[{name}](#{name.lower()})")
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    variants = schema.get("anyOf", schema.get("oneOf"))
    if variants:
        kinds = dict.fromkeys(_kind(variant) for variant in variants if variant.get("type") != "null")
        return " or ".join(kinds)
    kind = schema.get("type", "any")
    if kind == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return " or ".join(k for k in kind if k != "null") if isinstance(kind, list) else str(kind)


def _snake_case(name: str) -> str:
    """Return the Python name of a field, parameter or operation, as the Python client has it."""
    plain = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
    return f"{plain}_" if keyword.iskeyword(plain) or hasattr(dict, plain) else plain


def _table(heading: tuple[str, ...], rows: list[str]) -> list[str]:
    return [f"| {' | '.join(heading)} |", "| --- " * len(heading) + "|", *rows]


def _fence(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _slug(name: str) -> str:
    return name.replace(" ", "-")


def _capital(name: str) -> str:
    return name[:1].upper() + name[1:]
