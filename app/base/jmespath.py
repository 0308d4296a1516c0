"""Evaluate JMESPath expressions of tenants within a budget of steps.

The stock interpreter is unbounded: `[@,@]` piped into itself 40 times is a value of 2**40 parts that takes no
memory until it is written, and `join` doubles a text in the same way. It also raises TypeError, OverflowError
or RecursionError for values that do not fit. Here, every step costs one unit, and whatever copies, compares
or reads a whole value costs as much as the value's size. The default budget is at most about two seconds of
one core.

Beside the functions of JMESPath there is `decimal_sum`, which adds decimal strings and integers exactly.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import MAX_PREC, Context, Decimal
from typing import Any, Final

import jmespath
from jmespath.exceptions import JMESPathError, JMESPathTypeError
from jmespath.functions import Functions, signature
from jmespath.visitor import TreeInterpreter

from app.base.json import strict_json

MAX_EXPRESSION_CHARS: Final = 10_000
MAX_STEPS: Final = 2_000_000  # each takes just under 1 µs
MAX_DECIMAL_CHARS: Final = 100
_NODES_PER_STEP: Final = 8  # reading one node of a value is this much cheaper than a step
_CHARS_PER_NODE: Final = 8
_NODES_PER_ADDITION: Final = 24  # of a decimal: about 3 µs
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
_JMESPATH_TYPES: Final = {
    "NoneType": "null",
    "bool": "boolean",
    "dict": "object",
    "float": "number",
    "int": "number",
    "list": "array",
    "str": "string",
}
"""The names of types in JMESPath; the library names some of them as Python does."""
_DECIMAL: Final = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)")
_EXACT: Final = Context(prec=MAX_PREC)
_JSON_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


class ExpressionRejected(JMESPathError):
    """The expression is invalid or too expensive, or its value cannot be written as JSON."""


class UnknownValueRead(JMESPathError):
    """The expression reads a value that is not known yet."""

    def __init__(self) -> None:
        super().__init__("the expression reads a value that is not known yet")


class _Unknown:
    """The type of `UNKNOWN`."""


UNKNOWN: Final = _Unknown()
"""Stands in a document for a value that is not known yet. An expression that depends on it raises UnknownValueRead."""


def parse_decimal(value: Any) -> Decimal | None:
    """Return the number that a decimal string (`"-12.50"`) or an integer is, or None for any other value."""
    if isinstance(value, int) and not isinstance(value, bool):
        return Decimal(value)
    if isinstance(value, str) and len(value) <= MAX_DECIMAL_CHARS and _DECIMAL.fullmatch(value):
        return Decimal(value)
    return None


class _Functions(Functions):
    """The functions of JMESPath, and those of the service."""

    @signature({"types": []})
    def _func_to_number(self, value: Any) -> Any:
        """Return a number, or the number that a string is as JSON, or null. The stock function accepts what Python does,
        such as "1_000", digits of other scripts, and NaN."""
        if isinstance(value, str):
            match = _JSON_NUMBER.fullmatch(value)
            return match and (float(value) if match[2] or match[3] else int(value))
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None

    @signature({"types": ["array"]})
    def _func_decimal_sum(self, values: list[Any]) -> str:
        """Return the sum as a decimal string with as many places as the number with the most has."""
        total = Decimal(0)
        for value in values:
            number = parse_decimal(value)
            if number is None:
                raise ExpressionRejected(
                    'decimal_sum() adds decimal strings such as "12.50", of at most '
                    f"{MAX_DECIMAL_CHARS} characters, and integers"
                )
            total = _EXACT.add(total, number)
        return format(total, "f")


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
        function = _Functions.FUNCTION_TABLE.get(name)
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
    error. Its message contains no part of `value`, because messages are recorded where values must not be."""
    interpreter = _BoundedInterpreter(max_steps)
    results: dict[str, Any] = {}
    for name, expression in expressions.items():
        tree = compile_expression(expression).parsed
        try:
            results[name] = interpreter.visit(tree, value)
            interpreter.charge_values(results[name])
            strict_json.dumps(results[name])
        except JMESPathTypeError as error:
            expected = " or ".join(error.expected_types)
            actual = _JMESPATH_TYPES.get(error.actual_type, error.actual_type)
            raise ExpressionRejected(f"{error.function_name}() takes {expected}, not {actual}") from None
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
        self._call = _Functions().call_function
        self._remaining = max_steps * _NODES_PER_STEP

    def visit(self, node: Any, *args: Any, **kwargs: Any) -> Any:
        self._spend(_NODES_PER_STEP)
        result = super().visit(node, *args, **kwargs)
        if result is UNKNOWN or args[0] is UNKNOWN:
            raise UnknownValueRead
        return result

    def charge_values(self, *values: Any) -> None:
        """Charge for reading values completely; a shared part counts each time it occurs."""
        stack = list(values)
        while stack:
            item = stack.pop()
            cost = 1
            if item is UNKNOWN:
                raise UnknownValueRead
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
        if name == "decimal_sum" and args and isinstance(args[0], list):
            self._spend(len(args[0]) * _NODES_PER_ADDITION)
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
        flat = self._charge_copy(super().visit_flatten(node, value))
        if isinstance(flat, list) and UNKNOWN in flat:  # it may be an array, whose items would be here
            raise UnknownValueRead
        return flat

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
