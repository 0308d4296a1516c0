"""Approval predicates as data: CEL over `args` and `ctx`, compiled and type-checked at registration.

Anything but a plain `false` requires approval: an evaluation that fails or returns no boolean means
"required". The library bounds iterations (10,000) and nesting but not the cost of an iteration, and it holds
the interpreter's lock while it evaluates: a search in a text of 800 KB, repeated by `all`, blocked for 13 s.
So the cost is estimated from the expression and the size of the arguments, assuming the worst case, and an
evaluation that could take too long requires approval too.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from app.base.json import strict_json

MAX_PREDICATE_CHARS: Final = 4_000
MAX_EVALUATION_NS: Final = 250_000_000  # worst case of one evaluation
_BYTE_NS: Final = 8  # cost of one operation per byte
_STEP_NS: Final = 20  # cost of the regex engine per byte and state
_MAX_ITERATIONS: Final = 10_000  # the library's own limit
_MAX_REPETITIONS: Final = 1_000  # the engine's limit for quantifiers such as {1,900}, nested ones multiplied
_CHARS_PER_OPERATION: Final = 8
_MACRO: Final = re.compile(r"\.\s*(?:all|exists|exists_one|existsOne|map|filter)\s*\(")
_QUANTIFIER: Final = re.compile(r"\{(\d+)(?:,(\d*))?\}")
_PATTERN: Final = re.compile(r"\bmatches\b")
_PLAIN_PATTERN: Final = re.compile(r"""\.\s*matches\s*\(\s*[rR]?["']""")


class InvalidPredicate(ValueError):
    """The expression cannot be used as a predicate; the message says why."""


@lru_cache(maxsize=1)
def _cel() -> Any:
    """Load the library, which takes 5 MiB of a process, with the first predicate."""
    from cel_expr_python import cel  # noqa: PLC0415

    return cel


async def load() -> None:
    """Load the library in a thread, once: it takes up to 0.1 s of CPU."""
    if not _cel.cache_info().currsize:
        await asyncio.to_thread(_cel)


@lru_cache(maxsize=1)
def _environment() -> Any:
    types = _cel().Type
    return _cel().NewEnv(variables={"args": types.MAP, "ctx": types.MAP})


@lru_cache(maxsize=1000)
def compile_predicate(expression: str) -> Any:
    """Return the compiled expression. Raise InvalidPredicate if it does not parse or cannot return a
    boolean."""
    if len(expression) > MAX_PREDICATE_CHARS:
        raise InvalidPredicate(f"it has more than {MAX_PREDICATE_CHARS} characters")
    try:
        program = _environment().compile(expression)
    except Exception as error:
        raise InvalidPredicate(str(error).strip().splitlines()[0][:300]) from error
    types = _cel().Type
    if program.return_type() not in (types.BOOL, types.DYN):
        raise InvalidPredicate(f"it returns {program.return_type().name()}, not a boolean")
    return program


def requires_approval(expression: str, args: Mapping[str, Any], ctx: Mapping[str, Any]) -> bool:
    """Return whether this call needs an approval."""
    size = len(strict_json.dumps(dict(args)))
    return worst_case_ns(expression, args, size) > MAX_EVALUATION_NS or evaluate(expression, args, ctx)


def evaluate(expression: str, args: Mapping[str, Any], ctx: Mapping[str, Any]) -> bool:
    """Return the expression's value, whatever the evaluation costs: see `worst_case_ns` and
    predicate_pool.py."""
    try:
        value = compile_predicate(expression).eval(data={"args": dict(args), "ctx": dict(ctx)})
    except Exception:  # noqa: BLE001 - any error in a predicate means that approval is required
        return True
    return bool(value.type() != _cel().Type.BOOL or value.value())


def predicate_digest(runtime: str, predicate: str) -> str:
    """Return the digest under which a user's process serves a predicate: it covers the runtime's line and the
    name."""
    return hashlib.sha256(strict_json.canonical({"runtime": runtime, "predicate": predicate})).hexdigest()


def worst_case_ns(expression: str, args: Mapping[str, Any], args_bytes: int) -> float:
    """Return the worst-case cost of an evaluation: operations times bytes times iterations."""
    size = args_bytes + len(expression) + 200  # the context is small
    operations = 1 + len(expression) // _CHARS_PER_OPERATION
    macros = len(_MACRO.findall(expression))
    grows = "+" in expression  # strings and lists can be concatenated, repeatedly in nested macros
    byte_ns = _BYTE_NS
    patterns = len(_PATTERN.findall(expression))
    if patterns:
        plain = len(_PLAIN_PATTERN.findall(expression)) == patterns and not grows
        counts = [max(int(n or 0) for n in program) for program in _QUANTIFIER.findall(expression)]
        repeated = min(_MAX_REPETITIONS, math.prod(max(1, n) for n in counts))
        byte_ns = _STEP_NS * (len(expression) * repeated if plain else size * _MAX_REPETITIONS)
    if not macros or operations * size * byte_ns > MAX_EVALUATION_NS:
        return float(operations * size * byte_ns)
    growth = max(1.0, operations / macros) ** macros if grows else 1.0
    longest = _largest_collection(args) * (operations if grows or "[" in expression else 1)
    iterations = min(_MAX_ITERATIONS, longest**macros)
    return float(operations * size * growth * iterations * byte_ns)


def _largest_collection(value: Any) -> int:
    """Return the number of elements of the largest list or map in a value."""
    longest, stack = 1, [value]
    while stack:
        item = stack.pop()
        if isinstance(item, Mapping | list):
            longest = max(longest, len(item))
            stack += item if isinstance(item, list) else item.values()
    return longest
