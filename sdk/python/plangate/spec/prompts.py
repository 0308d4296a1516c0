"""System prompts from named layers: the same layers give the same bytes, a change a new fingerprint.

`layered_prompt` renders the eight layers, `render_layers` does it for the mapping that HTTP carries, and
`augment_prompt_tools` merges the tools an agent can call into the `# Tools` section of a finished text.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Any, Final, NamedTuple, TypeAlias

from pydantic import BaseModel

Text: TypeAlias = str | Sequence[str]


@dataclass(frozen=True, slots=True)
class LayeredPrompt:
    """A system prompt and its fingerprint; `str()` gives the text.

    Args:
        text: The final text, sent to the model unchanged.

    Attributes:
        cache_key: The fingerprint: lower-case hex SHA-256 of the text as UTF-8.

    Raises:
        ValueError: if the text holds half of a surrogate pair, which no UTF-8 can carry.

    Example:
        >>> LayeredPrompt("Be brief.").cache_key[:8]
        '213c22ed'
    """

    text: str
    cache_key: str = field(init=False)

    def __post_init__(self) -> None:
        try:
            digest = hashlib.sha256(self.text.encode()).hexdigest()
        except UnicodeEncodeError as error:
            raise ValueError(f"the prompt cannot be written as UTF-8: {error}") from error
        object.__setattr__(self, "cache_key", digest)

    def __str__(self) -> str:
        return self.text


def layered_prompt(
    *,
    identity: Text,
    communication: Text | None = None,
    operational_rules: Text | None = None,
    tools: Iterable[Any] | None = None,
    domain_knowledge: Any = None,
    safety: Text | None = None,
    output_format: Any = None,
    examples: Any = None,
) -> LayeredPrompt:
    """Render the layers in their fixed order; an empty layer other than `identity` is left out.

    Args:
        identity: Who the agent is, never empty. A string is text, a sequence of strings one bullet each.
        communication: How it speaks; as `identity`.
        operational_rules: How it works; as `identity`.
        tools: What the tool table lists: ToolSpecs, mappings with `name`, `description` and `approval`, or
            bare names. The table only informs the model: a row registers nothing.
        domain_knowledge: A JSON-able value or Pydantic model, rendered as a JSON block; a string stays text.
        safety: What it must not do; as `identity`.
        output_format: As `domain_knowledge`.
        examples: As `domain_knowledge`.

    Raises:
        TypeError: naming the section, for a value that it does not accept: a structured value in a text
            section, a non-finite float, a key that is no string, an unknown type, a malformed tool.
        ValueError: for an identity without text.

    Example:
        >>> print(layered_prompt(identity="You refund orders.", safety=["Never guess.", "Ask."]))
        # Identity
        You refund orders.
        <BLANKLINE>
        # Safety
        - Never guess.
        - Ask.
    """
    if identity is None:
        raise TypeError("the section 'Identity' (identity) is required")
    values = {
        "identity": identity,
        "communication": communication,
        "operational_rules": operational_rules,
        "tools": tools,
        "domain_knowledge": domain_knowledge,
        "safety": safety,
        "output_format": output_format,
        "examples": examples,
    }
    bodies = [(layer.heading, layer.render(layer, values[layer.argument])) for layer in _LAYERS]
    if not bodies[0][1]:
        raise ValueError("the section 'Identity' (identity) is empty: say who the agent is")
    return LayeredPrompt("\n\n".join(f"# {heading}\n{body}" for heading, body in bodies if body))


def render_layers(layers: Mapping[str, Any]) -> LayeredPrompt:
    """Render the layers as HTTP carries them: `layered_prompt` for a mapping with camelCase names.

    Args:
        layers: Layer name to value, such as `{"identity": "...", "operationalRules": [...]}`; snake_case
            names are accepted too, and null is a layer that is not there.

    Raises:
        TypeError: for an unknown layer, a layer given twice, a missing `identity`, and whatever
            `layered_prompt` refuses.
        ValueError: for an identity without text.

    Example:
        >>> render_layers({"identity": "I", "outputFormat": "One line."}).text
        '# Identity\\nI\\n\\n# Output Format\\nOne line.'
    """
    if not isinstance(layers, Mapping):
        raise TypeError(f"prompt layers are an object, not {type(layers).__name__}")
    arguments: dict[str, Any] = {}
    for name, value in layers.items():
        layer = _BY_NAME.get(name)
        if layer is None:
            known = ", ".join(layer.wire for layer in _LAYERS)
            raise TypeError(f"unknown prompt layer {name!r}; the layers are {known}")
        if layer.argument in arguments:
            raise TypeError(f"the prompt layer {layer.wire!r} is given twice")
        arguments[layer.argument] = value
    if arguments.get("identity") is None:
        raise TypeError("the prompt layer 'identity' is required")
    return layered_prompt(**arguments)


def augment_prompt_tools(text: str | LayeredPrompt, tools: Iterable[Any]) -> LayeredPrompt:
    """Merge tools into the `# Tools` section of a prompt; merging the same tools again changes nothing.

    Rows that are in the prompt win, then the earlier of `tools`. Without such a section one is added: in a
    layered prompt after Identity, Communication and Operational Rules, else at the end.

    Args:
        text: The prompt.
        tools: What `layered_prompt` accepts as `tools`: the agent's own first, then those of its toolkits.

    Raises:
        TypeError: for a malformed tool.

    Example:
        >>> print(augment_prompt_tools("Be brief.", ["search"]))
        Be brief.
        <BLANKLINE>
        # Tools
        | Tool | Description | Approval |
        | --- | --- | --- |
        | search |  |  |
    """
    rows = _rows(tools)
    if not rows:
        return LayeredPrompt(str(text))
    lines = str(text).split("\n")
    visible = _outside_fences(lines)
    start = next((index for index in visible if lines[index].rstrip() == "# Tools"), None)
    if start is None:
        return LayeredPrompt(_with_section(lines, visible, _table(rows)))
    end = next((index for index in visible if index > start and lines[index].startswith("# ")), len(lines))
    body = _merge_rows(lines[start + 1 : end], rows)
    if end < len(lines) and body[-1].strip():
        body.append("")
    return LayeredPrompt("\n".join([*lines[: start + 1], *body, *lines[end:]]))


# One renderer for each form of body. An empty result leaves the section out.


def _text(layer: Layer, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        if strange := [item for item in value if not isinstance(item, str)]:
            raise TypeError(
                f"{layer} takes text or a list of texts; one of its items is {_describe_type(strange[0])}"
            )
        return "\n".join(f"- {item.strip()}" for item in value if item.strip())
    raise TypeError(f"{layer} takes text or a list of texts, not {_describe_type(value)}")


def _json_block(layer: Layer, value: Any) -> str:
    if isinstance(value, str):
        return value.strip()
    try:
        plain = _to_jsonable(layer, value)
    except RecursionError:
        raise TypeError(f"{layer} holds a value that contains itself or is nested too deeply") from None
    if plain is None or plain == {} or plain == []:
        return ""
    return f"```json\n{json.dumps(plain, indent=2, sort_keys=True, ensure_ascii=False)}\n```"


def _to_jsonable(layer: Layer, value: Any) -> Any:
    if isinstance(value, str):
        return str.__str__(value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        raise TypeError(f"{layer} holds {value}, which is not JSON")
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, BaseModel):
        return _to_jsonable(layer, value.model_dump(mode="json", by_alias=True))
    if isinstance(value, Mapping):
        if strange := [key for key in value if not isinstance(key, str)]:
            raise TypeError(f"{layer} holds the key {strange[0]!r}; keys must be strings")
        return {str.__str__(key): _to_jsonable(layer, item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_jsonable(layer, item) for item in value]
    raise TypeError(f"{layer} holds a value that is not JSON: {_describe_type(value)}")


def _tool_table(layer: Layer, value: Any) -> str:
    rows = _rows(() if value is None else value)
    return "\n".join(_table(rows)) if rows else ""


class Layer(NamedTuple):
    """One of the eight layers: where its value comes from and how it is rendered."""

    argument: str
    heading: str
    render: Callable[[Layer, Any], str]

    @property
    def wire(self) -> str:
        first, *rest = self.argument.split("_")
        return first + "".join(word.capitalize() for word in rest)

    def __str__(self) -> str:
        return f"the section {self.heading!r} ({self.argument})"


_LAYERS: Final = (
    Layer("identity", "Identity", _text),
    Layer("communication", "Communication", _text),
    Layer("operational_rules", "Operational Rules", _text),
    Layer("tools", "Tools", _tool_table),
    Layer("domain_knowledge", "Domain Knowledge", _json_block),
    Layer("safety", "Safety", _text),
    Layer("output_format", "Output Format", _json_block),
    Layer("examples", "Examples", _json_block),
)
_BY_NAME: Final = {name: layer for layer in _LAYERS for name in (layer.argument, layer.wire)}
_TOOLS: Final = 3  # the place of Tools among the layers
_BEFORE_TOOLS: Final = frozenset(f"# {layer.heading}" for layer in _LAYERS[:_TOOLS])
_AFTER_TOOLS: Final = frozenset(f"# {layer.heading}" for layer in _LAYERS[_TOOLS + 1 :])


_END_OF_SENTENCE: Final = re.compile(r"(?<![.!?])[.!?]+[\"'”’)\]]*(?=\s|$)|[。！？]")
_NOT_SPACE: Final = re.compile(r"\S")
_WORD_CHARS: Final = 20  # more than an abbreviation and the brackets before it
_ABBREVIATIONS: Final = frozenset({"e.g", "i.e", "etc", "vs", "cf", "approx", "incl"})


def first_sentence(text: str) -> str:
    """Return the first sentence of a text, or its first paragraph if no sentence ends in it."""
    paragraph = re.split(r"\n\s*\n", text.strip(), maxsplit=1)[0]
    for end in _END_OF_SENTENCE.finditer(paragraph):
        before = paragraph[max(end.start() - _WORD_CHARS, 0) : end.start()].rsplit(maxsplit=1)
        word = before[-1].lower().lstrip("([\"'") if before else ""
        rest = _NOT_SPACE.search(paragraph, end.end())
        if word not in _ABBREVIATIONS and not (rest and rest[0].islower()):
            return paragraph[: end.end()]
    return paragraph


# The tool table. Rows are kept as escaped cells under the tool's name.

Rows: TypeAlias = dict[str, tuple[str, str, str]]
_HEADER: Final = ["Tool", "Description", "Approval"]
_NEWLINE: Final = re.compile(r"\r\n|\r|\n")
_UNESCAPED_PIPE: Final = re.compile(r"(?<!\\)\|")
_RULE: Final = re.compile(r"[\s|:-]+")
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")


def _rows(tools: Iterable[Any]) -> Rows:
    layer = _LAYERS[_TOOLS]
    if isinstance(tools, str | bytes | Mapping | BaseModel) or not isinstance(tools, Iterable):
        raise TypeError(f"{layer} takes a list of tools, not {_describe_type(tools)}")
    rows: Rows = {}
    for tool in tools:
        name, *others = (_join_lines(text) for text in _tool_cells(layer, tool))
        if not name:
            raise TypeError(f"{layer} lists a tool with an empty name")
        description, approval = map(_escape_pipes, others)
        rows.setdefault(name, (_escape_pipes(name), description, approval))
    return rows


def _tool_cells(layer: Layer, tool: Any) -> tuple[str, str, str]:
    """Name, description, approval of what may stand in a tool table."""
    tool = getattr(tool, "spec", tool)  # what define_tool makes
    if isinstance(tool, str):
        return tool, "", ""
    if isinstance(tool, BaseModel):
        tool = {key: getattr(tool, key, None) for key in ("name", "description", "approval")}
    if not isinstance(tool, Mapping) or not isinstance(tool.get("name"), str):
        raise TypeError(f"{layer} takes tools, mappings with a name, or names, not {_describe_type(tool)}")
    name, description, approval = tool["name"], tool.get("description"), tool.get("approval")
    if not isinstance(description, str | None):
        raise TypeError(f"{layer}: the description of {name!r} is {_describe_type(description)}, not text")
    kind = approval.get("kind") if isinstance(approval, Mapping) else getattr(approval, "kind", approval)
    if approval is not None and not isinstance(kind, str):
        raise TypeError(f"{layer}: the approval of {name!r} is neither text nor a rule with a 'kind'")
    return name, description or "", "" if kind in (None, "default") else str(kind)


def _join_lines(text: str) -> str:
    return _NEWLINE.sub(" ", text.strip())


def _escape_pipes(text: str) -> str:
    return text.replace("|", "\\|")


def _table(rows: Rows) -> list[str]:
    cells = [_HEADER, ["---"] * 3, *(rows[name] for name in sorted(rows))]
    return [f"| {' | '.join(row)} |" for row in cells]


def _cells(line: str) -> list[str]:
    """Return the cells of a table row, still escaped, or none if the line is not a row."""
    inner = line.strip()
    if not inner.startswith("|"):
        return []
    return [cell.strip() for cell in _UNESCAPED_PIPE.split(inner.removeprefix("|").removesuffix("|"))]


def _merge_rows(body: list[str], rows: Rows) -> list[str]:
    """Return the lines of a Tools section with `rows` merged into its table, or with a table at its end."""
    top = next((index for index in _outside_fences(body) if _cells(body[index]) == _HEADER), None)
    if top is None:
        prose = "\n".join(body).rstrip()
        return [*([*prose.split("\n"), ""] if prose else []), *_table(rows)]
    bottom = top + 1
    while bottom < len(body) and _cells(body[bottom]):
        bottom += 1
    first = top + 2 if top + 1 < bottom and _RULE.fullmatch(body[top + 1]) else top + 1
    rendered: Rows = {}
    for line in body[first:bottom]:
        tool, description, approval, *_ = (*_cells(line), "", "")
        rendered.setdefault(tool.replace("\\|", "|"), (tool, description, approval))
    return [*body[:top], *_table({**rows, **rendered}), *body[bottom:]]


def _with_section(lines: list[str], visible: Sequence[int], table: list[str]) -> str:
    place = len(lines)
    if lines[0].rstrip() in _BEFORE_TOOLS:
        place = next((index for index in visible if lines[index].rstrip() in _AFTER_TOOLS), place)
    before, after = "\n".join(lines[:place]).rstrip(), "\n".join(lines[place:])
    return "\n\n".join(part for part in (before, "\n".join(["# Tools", *table]), after) if part)


def _outside_fences(lines: list[str]) -> list[int]:
    """Return the indexes of lines outside code blocks. An unclosed fence opens no block."""
    fences = [_FENCE.fullmatch(line) for line in lines]
    longest = {"`": 0, "~": 0}  # closing fence from here on; so that no search for one is in vain
    ahead: list[int] = []
    for fence in reversed(fences):
        ahead.append(longest[fence[1][0]] if fence else 0)
        if fence and not fence[2].strip():
            longest[fence[1][0]] = max(longest[fence[1][0]], len(fence[1]))
    ahead.reverse()
    visible: list[int] = []
    index = 0
    while index < len(lines):
        visible.append(index)
        opening = fences[index]
        if opening and ahead[index] >= len(opening[1]):
            index += 1
            while not _closes(fences[index], opening[1]):
                index += 1
        index += 1
    return visible


def _closes(fence: re.Match[str] | None, opening: str) -> bool:
    return fence is not None and fence[1].startswith(opening) and not fence[2].strip()


def _describe_type(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
