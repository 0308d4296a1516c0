"""Approval predicates as data: CEL over `args` and `ctx`, compiled and type-checked at registration.

Whatever is not plainly `false` asks a person: an evaluation that errs, or gives anything but a boolean, is "required".
The library bounds iterations (10,000) and nesting, not what one iteration costs, and it holds the interpreter's lock
while it evaluates: a search in a text of 800 KB, repeated by `all`, stood still for 13 s. So the cost is estimated from
the expression and the size of the arguments, as if everything were the worst case, and what could take too long asks a
person too.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from cel_expr_python import cel

from app.base.json import strict_json

VARIABLES = {"args": cel.Type.MAP, "ctx": cel.Type.MAP}

MAX_PREDICATE_CHARS: Final = 4_000
MAX_EVALUATION_NS: Final = 250_000_000  # of the worst case of one evaluation
_BYTE_NS: Final = 8  # an operation that reads a byte
_STEP_NS: Final = 20  # a pattern's engine at one byte, for each of its states
_MAX_ITERATIONS: Final = 10_000  # the library's own bound
_MAX_REPETITIONS: Final = 1_000  # what the engine takes of {1,900}, nested ones together
_CHARS_PER_OPERATION: Final = 8
_MACRO: Final = re.compile(r"\.\s*(?:all|exists|exists_one|existsOne|map|filter)\s*\(")
_QUANTIFIER: Final = re.compile(r"\{(\d+)(?:,(\d*))?\}")
_PATTERN: Final = re.compile(r"\bmatches\b")
_PLAIN_PATTERN: Final = re.compile(r"""\.\s*matches\s*\(\s*[rR]?["']""")


class InvalidPredicate(ValueError):
    """The expression cannot be a predicate; the message says why."""


@lru_cache(maxsize=1)
def _environment() -> Any:
    return cel.NewEnv(variables=VARIABLES)


@lru_cache(maxsize=1000)
def compile_predicate(expression: str) -> Any:
    """The compiled expression. NotAPredicate where it does not parse, or cannot give a boolean."""
    if len(expression) > MAX_PREDICATE_CHARS:
        raise InvalidPredicate(f"it has more than {MAX_PREDICATE_CHARS} characters")
    try:
        found = _environment().compile(expression)
    except Exception as error:
        raise InvalidPredicate(str(error).strip().splitlines()[0][:300]) from error
    if found.return_type() not in (cel.Type.BOOL, cel.Type.DYN):
        raise InvalidPredicate(f"it gives {found.return_type().name()}, not a boolean")
    return found


def requires_approval(expression: str, args: Mapping[str, Any], ctx: Mapping[str, Any]) -> bool:
    """Whether this call needs an approval."""
    size = len(strict_json.dumps(dict(args)))
    return worst_case_ns(expression, args, size) > MAX_EVALUATION_NS or evaluate(expression, args, ctx)


def evaluate(expression: str, args: Mapping[str, Any], ctx: Mapping[str, Any]) -> bool:
    """Return what the expression gives, whatever that costs: see `worst_ns` and predicate_pool.py."""
    try:
        value = compile_predicate(expression).eval(data={"args": dict(args), "ctx": dict(ctx)})
    except Exception:  # noqa: BLE001 - a predicate that errs means required, whatever the error is
        return True
    return bool(value.type() != cel.Type.BOOL or value.value())


def predicate_digest(runtime: str, predicate: str) -> str:
    """Under which a process of the user serves a predicate: that of the runtime's line, not of its name alone."""
    return hashlib.sha256(strict_json.canonical({"runtime": runtime, "predicate": predicate})).hexdigest()


def worst_case_ns(expression: str, args: Mapping[str, Any], args_bytes: int) -> float:
    """What an evaluation could cost at worst: operations by bytes by iterations."""
    size = args_bytes + len(expression) + 200  # the context is small
    operations = 1 + len(expression) // _CHARS_PER_OPERATION
    macros = len(_MACRO.findall(expression))
    grows = "+" in expression  # texts and lists can be put together, in nested macros again and again
    byte_ns = _BYTE_NS
    patterns = len(_PATTERN.findall(expression))
    if patterns:
        plain = len(_PLAIN_PATTERN.findall(expression)) == patterns and not grows
        counts = [max(int(n or 0) for n in found) for found in _QUANTIFIER.findall(expression)]
        repeated = min(_MAX_REPETITIONS, math.prod(max(1, n) for n in counts))
        byte_ns = _STEP_NS * (len(expression) * repeated if plain else size * _MAX_REPETITIONS)
    if not macros or operations * size * byte_ns > MAX_EVALUATION_NS:
        return float(operations * size * byte_ns)
    growth = max(1.0, operations / macros) ** macros if grows else 1.0
    longest = _largest_collection(args) * (operations if grows or "[" in expression else 1)
    iterations = min(_MAX_ITERATIONS, longest**macros)
    return float(operations * size * growth * iterations * byte_ns)


def _largest_collection(value: Any) -> int:
    """The number of elements of the largest list or map in a value."""
    longest, stack = 1, [value]
    while stack:
        item = stack.pop()
        if isinstance(item, Mapping | list):
            longest = max(longest, len(item))
            stack += item if isinstance(item, list) else item.values()
    return longest
