"""Declarations of a runtime: plans, references, tools and toolkits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    field_validator,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from plangate.spec.base import (
    CENTURY_MS,
    MAX_ITEMS,
    MAX_KEY_CHARS,
    Flag,
    JsonSchema,
    Key,
    Milliseconds,
    Name,
    Shorthand,
    SpecModel,
    Text,
    at_most,
    describe_on_wire,
)
from plangate.spec.models.rules import Rule
from plangate.spec.transports import ClientTransport, Replay, Transport
from plangate.statuses import FactKind, PlanStatus

MAX_EXPRESSION_CHARS: Final = 10_000
MAX_FACTS: Final = 6
MAX_LABEL_CHARS: Final = 100
MAX_UNIT_CHARS: Final = 20
Expression = Annotated[str, Field(max_length=MAX_EXPRESSION_CHARS)]


class DisplayAlias(SpecModel):
    """A display name for a status of plans.

    Args:
        status: A stored status of a plan, such as `"draft"`.
        alias: Its name for people.

    Raises:
        pydantic.ValidationError: (a ValueError) for another status.

    Example:
        >>> DisplayAlias(status="draft", alias="Proposed").to_wire()
        {'status': 'draft', 'alias': 'Proposed'}
    """

    status: PlanStatus
    alias: Annotated[str, Field(min_length=1, max_length=200)]


class ReferenceSpec(SpecModel):
    """A kind of reference; `ttl_ms` None never expires.

    `glimpse` is a mapping of field name to JMESPath expression, which the service evaluates, or in Python a
    callable, which never crosses the wire.

    Args:
        name: The kind.
        schema: Whatever `normalize_schema` takes.
        ttl_ms: How long a value lives, in milliseconds, at least 0.
        glimpse: A mapping of field name to JMESPath expression, or in Python a function.

    Raises:
        pydantic.ValidationError: (a ValueError) for a negative `ttl_ms` or another malformed field.

    Example:
        >>> ReferenceSpec(name="Basket", schema={}, ttl_ms=60_000).to_wire()
        {'name': 'Basket', 'schema': {}, 'ttlMs': 60000}
    """

    always_on_wire: ClassVar[frozenset[str]] = frozenset({"name", "schema_"})

    name: Name
    schema_: JsonSchema = Field(alias="schema")
    """The JSON Schema of the values."""
    ttl_ms: Annotated[int, Field(strict=True, ge=0, le=CENTURY_MS)] | None = None
    glimpse: (
        Annotated[dict[Key, Expression], at_most(MAX_ITEMS)] | SkipJsonSchema[Callable[[Any], Any]] | None
    ) = Field(default=None, exclude_if=callable)

    def _is_on_wire(self, name: str, value: Any, default: Any) -> bool:
        """Leave out a glimpse that is a function."""
        return not callable(value) and super()._is_on_wire(name, value, default)


class ToolAnnotations(SpecModel):
    """Promises of a tool: that it changes nothing, or nothing more when it is repeated.

    Args:
        read_only: A call changes nothing.
        idempotent: The same call again changes nothing more.

    Raises:
        pydantic.ValidationError: (a ValueError) for an unknown field, or what is no bool.

    Example:
        >>> ToolAnnotations(read_only=True).to_wire()
        {'readOnly': True}
    """

    read_only: Flag = False
    idempotent: Flag = False


class ToolSpec(SpecModel):
    """A tool that exists; `agents[].tools` names who may call it.

    Args:
        name: What the model calls it.
        description: The description that the model reads.
        input_schema: Whatever `normalize_schema` takes; arguments are validated against it.
        output_schema: What results must match.
        approval: `"always"`, `"never"`, or an ApprovalRule; unset or `"default"`, what agent and runtime say.
        annotations: What it promises.
        timeout_ms: How long a call may take, in milliseconds.
        replay: `"safe"` or `"never"`: whether a call may be repeated when nobody knows whether it ran.
        transport: Where it runs: `{"kind": "client"}` (processes of the user), `"http"`, `"mcp"`, `"python"`.

    Raises:
        pydantic.ValidationError: (a ValueError) for a malformed field.

    Example:
        >>> ToolSpec(name="look", input_schema={"id": str}, annotations={"read_only": True}).replay_rule()
        'safe'
    """

    always_on_wire: ClassVar[frozenset[str]] = frozenset({"name", "input_schema", "transport"})

    name: Name
    description: Text = ""
    input_schema: JsonSchema
    output_schema: JsonSchema | None = None
    approval: Rule = None
    annotations: ToolAnnotations | None = None
    timeout_ms: Milliseconds | None = None
    replay: Replay | None = None
    transport: Transport = ClientTransport()

    def replay_rule(self) -> Replay:
        """Return the replay rule: the spec's value, else "safe" for read-only or idempotent tools, else "never"."""
        if self.replay is not None:
            return self.replay
        promises = self.annotations
        return "safe" if promises is not None and (promises.read_only or promises.idempotent) else "never"


def _schema_or_tools(schema: dict[str, Any], model: type[BaseModel]) -> None:
    """Describe a plan on the wire: a schema is not required if there are tools."""
    describe_on_wire(schema, model)
    schema["required"].remove("schema")


class FactSpec(SpecModel):
    """A fact that approvals of a plan show. The service computes it when the plan reaches its gate; no model writes it.

    Args:
        expression: JMESPath over the stored body, with values in the place of variables and each reference's glimpse
            beside its handle. `decimal_sum` adds decimal strings and integers exactly.
        label: Its name for people; the key of the fact if unset.
        unit: What the value counts, such as `"USD"`.
        kind: `"decimal"` (a decimal string or an integer), `"integer"` or `"text"`. Any other value is a failure. Unset
            accepts any JSON but null.

    Raises:
        pydantic.ValidationError: (a ValueError) for a malformed field.

    Example:
        >>> FactSpec(expression="decimal_sum(actions[].payload.amount)", unit="USD", kind="decimal").to_wire()
        {'expression': 'decimal_sum(actions[].payload.amount)', 'unit': 'USD', 'kind': 'decimal'}
    """

    expression: Expression
    label: Annotated[str, Field(min_length=1, max_length=MAX_LABEL_CHARS)] | None = None
    """Its name for people; the key of the fact if unset."""
    unit: Annotated[str, Field(min_length=1, max_length=MAX_UNIT_CHARS)] | None = None
    """What the value counts, such as `USD`."""
    kind: FactKind | None = None


ActionKey = Annotated[tuple[Key, ...], Field(min_length=1), at_most(MAX_ITEMS)]
"""Names of fields of an action."""

FactOrExpression = Annotated[
    FactSpec,
    BeforeValidator(lambda value: {"expression": value} if isinstance(value, str) else value),
    Shorthand(type="string", maxLength=MAX_EXPRESSION_CHARS, description="The `expression` alone."),
]


class PlanSpec(SpecModel):
    """A kind of plan. Its schema has a top-level array `actions`, or its actions are calls of `tools`; `variables`
    allows daggers in it.

    Args:
        name: Its name; planners store plans under it.
        schema: Whatever `normalize_schema` takes. With `tools` it declares the other fields of the plan, if any:
            the actions come from the schemas of the tools.
        tools: Declared tools: their names, or in Python ToolSpecs. An action is `{"tool": name, ...arguments}`, and its
            tool carries it out.
        display_aliases: What people read in place of a status; one for each.
        variables: Whether daggers are allowed without the toolkit `variables`.
        glimpse: Up to six facts that approvals show, by name: a FactSpec, or a JMESPath expression alone.
        action_keys: The fields that identify an action, by its kind, when revisions are compared.

    Raises:
        pydantic.ValidationError: (a ValueError) for a malformed field. `define_plan` says more.

    Example:
        >>> PlanSpec(name="Refunds", schema={"actions": list[dict]}).schema_["required"]
        ['actions']
    """

    model_config = ConfigDict(json_schema_extra=_schema_or_tools)
    always_on_wire: ClassVar[frozenset[str]] = frozenset({"name", "schema_"})

    name: Name
    schema_: JsonSchema = Field(alias="schema")
    """The JSON Schema of the plan."""
    tools: Annotated[tuple[Key, ...], at_most(MAX_ITEMS)] = ()
    display_aliases: Annotated[tuple[DisplayAlias, ...], at_most(MAX_ITEMS)] = ()
    variables: Flag = False
    glimpse: Annotated[dict[Key, FactOrExpression], at_most(MAX_FACTS)] = Field(default_factory=dict)
    action_keys: Annotated[dict[Key, ActionKey], at_most(MAX_ITEMS)] = Field(default_factory=dict)

    _bound: tuple[ToolSpec, ...] = PrivateAttr(default=())

    @model_validator(mode="wrap")
    @classmethod
    def _complete(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Store tools that are ToolSpec objects separately and keep their names in `tools`. With tools, `schema` is
        optional."""
        if not isinstance(data, Mapping):
            return handler(data)
        fields, tools = dict(data), data.get("tools")
        bound: list[ToolSpec] = []
        if isinstance(tools, list | tuple):
            bound = [tool for tool in tools if isinstance(tool, ToolSpec)]
            fields["tools"] = tuple(tool.name if isinstance(tool, ToolSpec) else tool for tool in tools)
        if tools and fields.get("schema") is None and fields.get("schema_") is None:
            fields = {key: value for key, value in fields.items() if key != "schema_"} | {"schema": {}}
        plan = handler(fields)
        plan._bound = tuple(bound)
        return plan

    @property
    def bound_tools(self) -> tuple[ToolSpec, ...]:
        """The tools that it was given as objects; the runtime collects them."""
        return self._bound

    @field_validator("display_aliases")
    @classmethod
    def _one_alias_a_status(cls, aliases: tuple[DisplayAlias, ...]) -> tuple[DisplayAlias, ...]:
        statuses = [alias.status for alias in aliases]
        for status in statuses:
            if statuses.count(status) > 1:
                raise PydanticCustomError(
                    "alias", "the status '{status}' has two aliases: keep one", {"status": status}
                )
        return aliases


class ToolkitConfig(SpecModel):
    """`tools` narrows the toolkit to the named ones, `sources` (of the toolkit `catalog`) the data that it reads;
    unset leaves it whole.

    Args:
        tools: The names of tools that are left.
        sources: The names of the data sources that the tools may read.

    Raises:
        pydantic.ValidationError: (a ValueError) for what is no list of names.

    Example:
        >>> ToolkitConfig(tools=["getPlan"]).to_wire()
        {'tools': ['getPlan']}
    """

    tools: Annotated[tuple[Key, ...], at_most(MAX_ITEMS)] | None = None
    sources: Annotated[tuple[Key, ...], at_most(MAX_ITEMS)] | None = None

    def _is_on_wire(self, name: str, value: Any, default: Any) -> bool:
        """Keep an empty list, which narrows the toolkit to nothing."""
        return value is not None


class ToolkitSpec(SpecModel):
    """A set of built-in tools by its id; a bare string is the id alone.

    Args:
        id: `"plans"`, `"references"`, and the others of the service.
        config: What narrows it.

    Raises:
        pydantic.ValidationError: (a ValueError) for a malformed field.

    Example:
        >>> ToolkitSpec(id="plans", config={"tools": ["getPlan"]}).to_wire()
        {'id': 'plans', 'config': {'tools': ['getPlan']}}
    """

    always_on_wire: ClassVar[frozenset[str]] = frozenset({"id"})

    id: Key
    config: ToolkitConfig | None = None


ToolkitOrId = Annotated[
    ToolkitSpec,
    BeforeValidator(lambda value: {"id": value} if isinstance(value, str) else value),
    Shorthand(type="string", maxLength=MAX_KEY_CHARS, description="The `id` alone."),
]
Toolkits = Annotated[tuple[ToolkitOrId, ...], at_most(MAX_ITEMS)]
