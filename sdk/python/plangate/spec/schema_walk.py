"""The subschemas of a JSON Schema. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from plangate.json_pointer import escape_step

REFERENCE_KEYWORDS: Final = ("$ref", "$dynamicRef", "$recursiveRef")
DATA_KEYWORDS: Final = frozenset({"const", "enum", "default", "examples"})
"""Keywords whose values are data: a `$ref` in them is only a word."""

MAP_KEYWORDS: Final = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
)
"""Keywords whose values are maps of schemas by name."""

_KEYWORDS: Final = """
$anchor $comment $dynamicAnchor $dynamicRef $id $recursiveAnchor $recursiveRef $ref $schema $vocabulary
additionalItems additionalProperties allOf anyOf const contains contentEncoding contentMediaType contentSchema
default deprecated description discriminator else enum example examples exclusiveMaximum exclusiveMinimum
externalDocs format id if items maxContains maxItems maxLength maxProperties maximum minContains minItems
minLength minProperties minimum multipleOf not nullable oneOf pattern prefixItems propertyNames readOnly required
then title type unevaluatedItems unevaluatedProperties uniqueItems writeOnly xml
"""
KEYWORDS: Final = MAP_KEYWORDS.union(_KEYWORDS.split())
"""The keywords of all dialects of JSON Schema, and of OpenAPI."""


def walk_schemas(root: Any) -> Iterator[tuple[str, Mapping[str, Any] | bool]]:
    """Yield the JSON pointer and the schema of every place that holds a schema, or may hold one, the root first.

    Data is not searched. Unknown keywords are, because references may lead into them.
    """
    stack: list[tuple[str, Any]] = [("", root)]
    while stack:
        pointer, schema = stack.pop()
        if isinstance(schema, list):
            stack += [(f"{pointer}/{index}", member) for index, member in enumerate(schema)][::-1]
        if isinstance(schema, Mapping | bool):
            yield pointer, schema
        if not isinstance(schema, Mapping):
            continue
        below: list[tuple[str, Any]] = []
        for keyword, member in schema.items():
            here = f"{pointer}/{escape_step(keyword)}"
            if keyword in MAP_KEYWORDS and isinstance(member, Mapping):
                below += [(f"{here}/{escape_step(name)}", inner) for name, inner in member.items()]
            elif keyword not in DATA_KEYWORDS:
                below.append((here, member))
        stack += below[::-1]
