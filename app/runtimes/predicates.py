"""Approval predicates as data: CEL over `args` and `ctx`, compiled and type-checked at registration.

Whatever is not plainly `false` asks a person: an evaluation that errs, or gives anything but a boolean, is "required".
The library's iteration budget bounds what one evaluation costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from cel_expr_python import cel

VARIABLES = {"args": cel.Type.MAP, "ctx": cel.Type.MAP}


class NotAPredicate(ValueError):
    """The expression cannot be a predicate; the message says why."""


@lru_cache(maxsize=1)
def _environment() -> Any:
    return cel.NewEnv(variables=VARIABLES)


@lru_cache(maxsize=1000)
def compiled(expression: str) -> Any:
    """The compiled expression. NotAPredicate where it does not parse, or cannot give a boolean."""
    try:
        found = _environment().compile(expression)
    except Exception as error:
        raise NotAPredicate(str(error).strip().splitlines()[0][:300]) from error
    if found.return_type() not in (cel.Type.BOOL, cel.Type.DYN):
        raise NotAPredicate(f"it gives {found.return_type().name()}, not a boolean")
    return found


def required(expression: str, args: Mapping[str, Any], ctx: Mapping[str, Any]) -> bool:
    """Whether this call needs an approval."""
    try:
        value = compiled(expression).eval(data={"args": dict(args), "ctx": dict(ctx)})
    except Exception:  # noqa: BLE001 - a predicate that errs means required, whatever the error is
        return True
    return bool(value.type() != cel.Type.BOOL or value.value())
