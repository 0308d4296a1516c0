"""Evaluate JMESPath expressions of tenants within a budget of steps.

The stock interpreter is unbounded: `[@,@]` piped into itself 40 times is a value of 2**40 parts that takes no
memory until it is written, and `join` doubles a text in the same way. It also raises TypeError, OverflowError
or RecursionError for values that do not fit. Here, every step costs one unit, and whatever copies, compares
or reads a whole value costs as much as the value's size. The default budget is at most about two seconds of
one core.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import jmespath
from jmespath.exceptions import JMESPathError
from jmespath.functions import Functions
from jmespath.visitor import TreeInterpreter

from app.base.json import strict_json

MAX_EXPRESSION_CHARS: Final = 10_000
MAX_STEPS: Final = 2_000_000  # each takes just under 1 µs
_NODES_PER_STEP: Final = 8  # reading one node of a value is this much cheaper than a step
_CHARS_PER_NODE: Final = 8
_SHALLOW_FUNCTIONS: Final = frozenset(
    {"length", "type", "not_null", "to_array", "keys", "values"}
)  # these read no elements
_EVALUATION_ERRORS: Final = (
    RecursionError,
    ValueError,
    TypeError,
    ArithmeticError,
    LookupError,
    AttributeError,
)


class ExpressionRejected(JMESPathError):
    """The expression is invalid or too expensive, or its value cannot be written as JSON."""


def compile_expression(expression: str) -> Any:
    """Parse the expression. Raise JMESPathError and no other error."""
    if len(expression) > MAX_EXPRESSION_CHARS:
        raise ExpressionRejected(f"an expression may have at most {MAX_EXPRESSION_CHARS} characters")
    try:
        return jmespath.compile(expression)
    except JMESPathError:
        raise
    except _EVALUATION_ERRORS as error:
        raise ExpressionRejected(
            "the expression is nested too deeply, or a literal in it is out of range"
        ) from error


def validate_calls(expression: str) -> None:
    """Raise JMESPathError if the expression is invalid or if one of its function calls can never work.

    Such a call names an unknown function or has the wrong number of arguments. The interpreter would raise
    only when it reaches the call.
    """
    stack = [compile_expression(expression).parsed]
    while stack:
        node = stack.pop()
        stack += [child for child in node.get("children", ()) if isinstance(child, dict)]
        if node["type"] != "function_expression":
            continue
        name, count = node["value"], len(node["children"])
        function = Functions.FUNCTION_TABLE.get(name)
        if function is None:
            raise ExpressionRejected(f"unknown function {name}()")
        arity = len(function["signature"])
        if count < arity or (count > arity and not function["signature"][-1].get("variadic")):
            raise ExpressionRejected(f"{name}() takes {arity} arguments, not {count}")


def search(expression: str, value: Any, *, max_steps: int = MAX_STEPS) -> Any:
    """Return the value of `expression` over `value`, as JSON. Raise JMESPathError and no other error."""
    return search_all({"": expression}, value, max_steps=max_steps)[""]


def search_all(expressions: Mapping[str, str], value: Any, *, max_steps: int = MAX_STEPS) -> dict[str, Any]:
    """Return the value of each expression over `value`, within one budget. Raise JMESPathError and no other
    error."""
    interpreter = _BoundedInterpreter(max_steps)
    results: dict[str, Any] = {}
    for name, expression in expressions.items():
        tree = compile_expression(expression).parsed
        try:
            results[name] = interpreter.visit(tree, value)
            interpreter.charge_values(results[name])
            strict_json.dumps(results[name])
        except JMESPathError:
            raise
        except _EVALUATION_ERRORS as error:
            raise ExpressionRejected(
                "the expression does not fit this value, or gives what JSON cannot hold"
            ) from error
    return results


class _BoundedInterpreter(TreeInterpreter):
    """The stock interpreter with a budget of steps."""

    def __init__(self, max_steps: int) -> None:
        super().__init__()
        self._call = Functions().call_function
        self._remaining = max_steps * _NODES_PER_STEP

    def visit(self, node: Any, *args: Any, **kwargs: Any) -> Any:
        self._spend(_NODES_PER_STEP)
        return super().visit(node, *args, **kwargs)

    def charge_values(self, *values: Any) -> None:
        """Charge for reading values completely; a shared part counts each time it occurs."""
        stack = list(values)
        while stack:
            item = stack.pop()
            cost = 1
            if isinstance(item, str):
                cost += len(item) // _CHARS_PER_NODE
            elif isinstance(item, list | dict):
                cost += len(item)
                if cost <= self._remaining:
                    stack += item if isinstance(item, list) else item.values()
            self._spend(cost)

    def visit_function_expression(self, node: Any, value: Any) -> Any:
        name = node["value"]
        args = [self.visit(child, value) for child in node["children"]]
        if name not in _SHALLOW_FUNCTIONS:
            self.charge_values(*args)
        elif name in ("keys", "values"):
            self._spend(sum(len(arg) for arg in args if isinstance(arg, dict)))
        if name == "join" and len(args) == 2 and isinstance(args[0], str) and isinstance(args[1], list):
            self._spend(len(args[0]) * len(args[1]) // _CHARS_PER_NODE)
        return self._call(name, args)

    def visit_comparator(self, node: Any, value: Any) -> Any:
        left, right = (self.visit(child, value) for child in node["children"])
        self.charge_values(left, right)
        if node["value"] not in ("eq", "ne") and not _are_comparable(left, right):
            return None
        return self.COMPARATOR_FUNC[node["value"]](left, right)

    def visit_multi_select_list(self, node: Any, value: Any) -> Any:
        return self._charge_result(super().visit_multi_select_list(node, value))

    def visit_multi_select_dict(self, node: Any, value: Any) -> Any:
        return self._charge_result(super().visit_multi_select_dict(node, value))

    def visit_flatten(self, node: Any, value: Any) -> Any:
        return self._charge_copy(super().visit_flatten(node, value))

    def visit_slice(self, node: Any, value: Any) -> Any:
        return self._charge_copy(super().visit_slice(node, value))

    def _charge_result(self, result: Any) -> Any:
        self.charge_values(result)
        return result

    def _charge_copy(self, result: Any) -> Any:
        self._spend(len(result) if isinstance(result, list) else 0)
        return result

    def _spend(self, cost: int) -> None:
        self._remaining -= cost
        if self._remaining < 0:
            raise ExpressionRejected("the expression needs too many steps for this value; simplify it")


def _are_comparable(left: Any, right: Any) -> bool:
    """Return whether two values can be ordered."""
    if isinstance(left, str) or isinstance(right, str):
        return isinstance(left, str) and isinstance(right, str)
    return all(isinstance(one, int | float) and not isinstance(one, bool) for one in (left, right))
