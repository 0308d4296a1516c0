"""Tools: what the model can call, and the function of the author that runs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import PrivateAttr

from plangate.authoring.arguments import (
    Handler,
    Rule,
    check_callable,
    describe_type,
    drop_unset,
    parse_schema,
)
from plangate.authoring.predicates import PredicateFunction
from plangate.spec.models import ToolAnnotations, ToolSpec


class DefinedTool(ToolSpec):
    """A tool with the function that runs it, if it runs here: what `define_tool` gives.

    Calling it calls that function. A tool without a function is a decorator for one.

    Args:
        fields: Those of ToolSpec.

    Raises:
        TypeError: when it is called and has no function, or decorates what does not take `(args, ctx)`.
        ValueError: when it decorates a function, but has a transport that runs it elsewhere.

    Example:
        >>> look = define_tool("look", {"id": str}, handler=lambda args, ctx: args["id"])
        >>> look({"id": "o-1"}, None)
        'o-1'
    """

    _handler: Handler | None = PrivateAttr(default=None)
    _predicate: PredicateFunction | None = PrivateAttr(default=None)

    @property
    def predicate(self) -> PredicateFunction | None:
        """The function `(args, ctx)` that decides which calls need an approval; None if its rule is data."""
        return self._predicate

    @property
    def handler(self) -> Handler | None:
        """The function `(args, ctx)`; None if the tool runs elsewhere."""
        return self._handler

    @property
    def spec(self) -> ToolSpec:
        """The data alone."""
        return ToolSpec.model_validate({name: getattr(self, name) for name in self.model_fields_set})

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._handler is not None:
            return self._handler(*args, **kwargs)
        if len(args) == 1 and not kwargs and callable(args[0]):
            return self.bind(args[0])
        raise TypeError(f"tool {self.name!r} has no handler: decorate a function (args, ctx) with it")

    def bind(self, handler: Handler) -> DefinedTool:
        """Return the same tool with this function to run it, in place of any that it has.

        Args:
            handler: A function `(args, ctx)`, sync or async.

        Raises:
            TypeError: for what does not take `(args, ctx)`.
            ValueError: for a tool whose transport runs it elsewhere.

        Example:
            >>> look = define_tool("look", {"id": str})
            >>> look.bind(lambda args, ctx: args["id"])({"id": "o-1"}, None)
            'o-1'
        """
        check_callable(handler, f"the handler of tool {self.name!r}", "args, ctx")
        if self.transport.kind != "client":
            raise ValueError(
                f"tool {self.name!r} has a handler, but its transport {self.transport.kind!r} runs it "
                f"elsewhere: leave one of them out"
            )
        copy = self.model_copy()
        copy._handler = handler
        return copy


def define_tool(
    name: str,
    input_schema: Any,
    description: str = "",
    approval: Rule | PredicateFunction = "default",
    *,
    handler: Handler | None = None,
    output_schema: Any = None,
    annotations: Mapping[str, bool] | ToolAnnotations | None = None,
    timeout_ms: int | None = None,
    replay: Literal["safe", "never"] | None = None,
    transport: Any = None,
) -> DefinedTool:
    """Declare a tool, as a call or as a decorator of the function that runs it.

    Args:
        name: What the model calls it.
        input_schema: Anything that `normalize_schema` takes; the arguments are validated against it.
        description: The description that the model reads.
        approval: `"never"`, `"always"`, `{"kind": "dynamic", "value": <predicate id>}`, or `"default"`: not
            set, so that the rules of agent and runtime hold. A function `(args, ctx)`, here or as `value`, is a
            dynamic rule that runs in the author's process, as `approval_predicates` of `create_runtime` do.
        handler: A function `(args, ctx)`, sync or async; it runs in the author's process.
        output_schema: What results must match.
        annotations: `read_only` and `idempotent`.
        timeout_ms: How long a call may take.
        replay: Whether a call may be repeated when nobody knows whether it ran; unset, `"safe"` where the
            annotations promise it.
        transport: Where it runs, if not in processes of the author, such as `{"kind": "http", "url": ...}`.

    Raises:
        TypeError: for a schema that is none, or a function that does not take `(args, ctx)`.
        ValueError: for a malformed field, or a handler beside a transport that would not call it.

    Example:
        >>> @define_tool("add", {"a": int, "b": int}, "Adds two numbers.")
        ... def add(args, ctx):
        ...     return args["a"] + args["b"]
        >>> add({"a": 1, "b": 2}, None), add.to_wire()["transport"]
        (3, {'kind': 'client'})
    """
    if not isinstance(name, str):
        raise TypeError(
            f"define_tool takes the tool's name and input schema first, not {describe_type(name)}"
        )
    rule, predicate = _split_rule(name, approval)
    fields = {
        "name": name,
        "description": description,
        "input_schema": parse_schema(input_schema, f"the input schema of tool {name!r}"),
        "approval": rule,
        "annotations": annotations,
        "timeout_ms": timeout_ms,
        "replay": replay,
        "transport": transport,
    }
    if output_schema is not None:
        fields["output_schema"] = parse_schema(output_schema, f"the output schema of tool {name!r}")
    tool = DefinedTool.model_validate(drop_unset(fields))
    tool._predicate = predicate
    return tool if handler is None else tool.bind(handler)


def _split_rule(name: str, approval: Any) -> tuple[Any, PredicateFunction | None]:
    """Return the rule as data, and the function that it is or has as `value`."""
    function = approval.get("value") if isinstance(approval, Mapping) else approval
    if not callable(function):
        return approval, None
    check_callable(function, f"the approval of tool {name!r}", "args, ctx", "a rule or ")
    rule = approval if isinstance(approval, Mapping) else {"kind": "dynamic"}
    return {**rule, "value": f"tools.{name}"}, function
