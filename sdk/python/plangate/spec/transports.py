"""Transports: how a call of a tool or an action reaches the code that runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import BeforeValidator, Discriminator, Field, GetJsonSchemaHandler, Tag
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema
from typing_extensions import TypeAliasType

from plangate.spec.base import (
    MAX_KEY_CHARS,
    Key,
    Milliseconds,
    Name,
    Shorthand,
    SpecModel,
    Url,
    at_most,
    set_entries,
)

TAG_PREFIX: Final = "kind:"
"""Marks the parts of a Pydantic location that name a variant and are not in the document."""

Replay = Literal["safe", "never"]


class SecretRef(SpecModel):
    """`{"secret": name}`: the value lies in the service's secret store under that name.

    Args:
        secret: The name.

    Raises:
        pydantic.ValidationError: (a ValueError) for a malformed field.

    Example:
        >>> ProviderSpec(kind="openai", api_key=SecretRef(secret="openai")).to_wire()["apiKey"]
        {'secret': 'openai'}
    """

    secret: Annotated[str, Field(min_length=1, max_length=200)]
    """The name of the secret."""


def _by_type(tag_of_str: str, tag_of_rest: str) -> Callable[[Any], str]:
    return lambda value: TAG_PREFIX + (tag_of_str if isinstance(value, str) else tag_of_rest)


MAX_SECRET_CHARS: Final = 65_536
HeaderValue = Annotated[
    Annotated[str, Field(max_length=MAX_SECRET_CHARS), Tag("kind:literal")]
    | Annotated[SecretRef, Tag("kind:secret")],
    Discriminator(_by_type("literal", "secret")),
]
"""Of a header or a key: the text itself, or the secret that holds it."""

MAX_HEADERS: Final = 50
Headers = Annotated[dict[Key, HeaderValue], at_most(MAX_HEADERS), set_entries]


class HttpTransport(SpecModel):
    """The service POSTs the call, signed, to `url`.

    Args:
        kind: `"http"`.
        url: Where.
        headers: What is sent with it: texts, or `{"secret": name}`.

    Raises:
        pydantic.ValidationError: (a ValueError) for a malformed field.

    Example:
        >>> HttpTransport(url="https://stock.example.com/reserve").to_wire()
        {'kind': 'http', 'url': 'https://stock.example.com/reserve'}
    """

    always_on_wire: ClassVar[frozenset[str]] = frozenset({"kind", "url"})

    kind: Literal["http"] = "http"
    """Always `http`."""
    url: Url
    headers: Headers = Field(default_factory=dict)


class ClientTransport(SpecModel):
    """Processes of the user claim the call.

    Args:
        kind: `"client"`.
        claim_within_ms: How long it may wait, in milliseconds; unset, 1 h.

    Raises:
        pydantic.ValidationError: (a ValueError) for a malformed field.

    Example:
        >>> ClientTransport(claim_within_ms=5_000).to_wire()
        {'kind': 'client', 'claimWithinMs': 5000}
    """

    always_on_wire: ClassVar[frozenset[str]] = frozenset({"kind"})

    kind: Literal["client"] = "client"
    """Always `client`."""
    claim_within_ms: Milliseconds | None = None
    """How long a call may wait to be claimed, in milliseconds; unset, an hour."""


class McpTransport(SpecModel):
    """A remote MCP server over Streamable HTTP.

    Args:
        kind: `"mcp"`.
        url: The address of the server.
        tool: The tool's name there, if it differs.
        headers: What is sent with it: texts, or `{"secret": name}`.
        definition_digest: Names the definition that the server gives of the tool: registration fills it in.

    Raises:
        pydantic.ValidationError: (a ValueError) for a malformed field.

    Example:
        >>> McpTransport(url="https://mcp.example.com/", tool="weather").to_wire()
        {'kind': 'mcp', 'url': 'https://mcp.example.com/', 'tool': 'weather'}
    """

    always_on_wire: ClassVar[frozenset[str]] = frozenset({"kind", "url"})

    kind: Literal["mcp"] = "mcp"
    """Always `mcp`."""
    url: Url
    tool: Annotated[str, Field(min_length=1, max_length=MAX_KEY_CHARS)] | None = None
    """The name of the tool at the server, if it differs."""
    headers: Headers = Field(default_factory=dict)
    definition_digest: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    """The SHA-256 of the definition that the server gave at registration, in hex."""


class PythonTransport(SpecModel):
    """An entry point that the operator installed beside the service.

    Args:
        kind: `"python"`.
        entry_point: Its name.

    Raises:
        pydantic.ValidationError: (a ValueError) for a malformed field.

    Example:
        >>> PythonTransport(entry_point="ledger.post").to_wire()
        {'kind': 'python', 'entryPoint': 'ledger.post'}
    """

    always_on_wire: ClassVar[frozenset[str]] = frozenset({"kind", "entry_point"})

    kind: Literal["python"] = "python"
    """Always `python`."""
    entry_point: Annotated[str, Field(min_length=1, max_length=MAX_KEY_CHARS)]


class DispatchOptions(SpecModel):
    """The options that every dispatcher adds to its transport.

    `replay`: whether an action that was left `dispatched` by a crash may be sent again with the same key.
    """

    replay: Replay = "never"
    timeout_ms: Milliseconds | None = None


class HttpDispatcher(DispatchOptions, HttpTransport):
    """Actions are POSTed to `url`.

    Args:
        fields: Those of HttpTransport, and as DispatchOptions `replay` (`"safe"` or `"never"`) and `timeout_ms`.

    Raises:
        pydantic.ValidationError: (a ValueError) for a malformed field.

    Example:
        >>> HttpDispatcher(url="https://bank.example.com/", replay="safe").replay
        'safe'
    """


class ClientDispatcher(DispatchOptions, ClientTransport):
    """Actions are claimed by the user's processes.

    Args:
        fields: Those of ClientTransport, and as DispatchOptions `replay` (`"safe"` or `"never"`) and `timeout_ms`.

    Raises:
        pydantic.ValidationError: (a ValueError) for a malformed field.

    Example:
        >>> ClientDispatcher().to_wire()
        {'kind': 'client'}
    """


class McpDispatcher(DispatchOptions, McpTransport):
    """Actions are calls of an MCP tool.

    Args:
        fields: Those of McpTransport, and as DispatchOptions `replay` (`"safe"` or `"never"`) and `timeout_ms`.

    Raises:
        pydantic.ValidationError: (a ValueError) for a malformed field.

    Example:
        >>> McpDispatcher(url="https://mcp.example.com/").kind
        'mcp'
    """


class PythonDispatcher(DispatchOptions, PythonTransport):
    """Actions go to an entry point beside the service.

    Args:
        fields: Those of PythonTransport, and as DispatchOptions `replay` (`"safe"` or `"never"`) and `timeout_ms`.

    Raises:
        pydantic.ValidationError: (a ValueError) for a malformed field.

    Example:
        >>> PythonDispatcher(entry_point="ledger.post").entry_point
        'ledger.post'
    """


class ToolDispatcher(DispatchOptions):
    """Actions run through a declared tool, which then is in no agent's `tools`.

    Args:
        kind: `"tool"`.
        tool: The name of the tool.
        replay: Whether an action that a crash left open may be dispatched again: `"safe"` or `"never"`.
        timeout_ms: How long one attempt may take, in milliseconds.

    Raises:
        pydantic.ValidationError: (a ValueError) for a malformed field.

    Example:
        >>> ToolDispatcher(tool="pay").to_wire()
        {'kind': 'tool', 'tool': 'pay'}
    """

    always_on_wire: ClassVar[frozenset[str]] = frozenset({"kind", "tool"})

    kind: Literal["tool"] = "tool"
    """Always `tool`."""
    tool: Name


def _expand_kind(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


def _by_kind(known: Mapping[str, type[SpecModel]]) -> Discriminator:
    def kind_of(value: Any) -> str | None:
        kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
        return TAG_PREFIX + kind if isinstance(kind, str) and kind in known else None

    return Discriminator(
        kind_of,
        custom_error_type="transport_kind",
        custom_error_message=f"its 'kind' must be one of {', '.join(known)} (builtin: see toolkits)",
    )


class _KindSchema:
    """Adds the discriminator `kind` to the JSON Schema: Pydantic writes none for a callable one."""

    def __init__(self, known: Mapping[str, type[SpecModel]]) -> None:
        self._known = known

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler(core_schema)
        references = [variant["$ref"] for variant in schema["oneOf"]]
        mapping = dict(zip(self._known, references, strict=True))
        return {**schema, "discriminator": {"propertyName": "kind", "mapping": mapping}}


_CLIENT: Final = Shorthand(type="string", enum=["client"], description='The same as `{"kind": "client"}`.')
_TRANSPORTS: Final[dict[str, type[SpecModel]]] = {
    "http": HttpTransport,
    "client": ClientTransport,
    "mcp": McpTransport,
    "python": PythonTransport,
}
_DISPATCHERS: Final[dict[str, type[SpecModel]]] = {
    "http": HttpDispatcher,
    "client": ClientDispatcher,
    "mcp": McpDispatcher,
    "python": PythonDispatcher,
    "tool": ToolDispatcher,
}

Transport = TypeAliasType(
    "Transport",
    Annotated[
        Annotated[HttpTransport, Tag("kind:http")]
        | Annotated[ClientTransport, Tag("kind:client")]
        | Annotated[McpTransport, Tag("kind:mcp")]
        | Annotated[PythonTransport, Tag("kind:python")],
        _by_kind(_TRANSPORTS),
        _KindSchema(_TRANSPORTS),
        BeforeValidator(_expand_kind),
        _CLIENT,
    ],
)
"""Of a tool. A bare string such as "client" stands for {"kind": "client"}."""

Dispatcher = TypeAliasType(
    "Dispatcher",
    Annotated[
        Annotated[HttpDispatcher, Tag("kind:http")]
        | Annotated[ClientDispatcher, Tag("kind:client")]
        | Annotated[McpDispatcher, Tag("kind:mcp")]
        | Annotated[PythonDispatcher, Tag("kind:python")]
        | Annotated[ToolDispatcher, Tag("kind:tool")],
        _by_kind(_DISPATCHERS),
        _KindSchema(_DISPATCHERS),
        BeforeValidator(_expand_kind),
        _CLIENT,
    ],
)
"""Of approved actions: the write boundary, never callable by a model."""
