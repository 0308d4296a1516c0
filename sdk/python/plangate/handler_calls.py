"""What a handler receives and what becomes of its exceptions, in the user's process and in the service. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

MAX_ERROR_CHARS: Final = 20_000

_DISPATCH_FIELDS: Final = {
    "idempotency_key": "idempotencyKey",
    "plan_id": "planId",
    "spec_name": "specName",
    "revision": "revision",
    "digest": "digest",
    "attempt": "attempt",
    "inputs": "inputs",
    "resolved_refs": "resolvedRefs",
}


def dispatch_fields(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a dispatcher has in its `ctx` besides the fields of every call, from the request on the wire."""
    return {name: request.get(field) for name, field in _DISPATCH_FIELDS.items()}


def error_text(error: BaseException) -> str:
    """Return the text of an exception for the model: its type and message, never a traceback.

    Example:
        >>> error_text(ValueError("no such flight"))
        'ValueError: no such flight'
    """
    message = str(error).strip()
    return sanitize_error(f"{type(error).__name__}: {message}" if message else type(error).__name__)


def sanitize_error(text: str) -> str:
    """Return the text of an error without lone surrogates and NUL, which JSON over HTTP cannot carry, and not too long."""
    clean = text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
    return clean if len(clean) <= MAX_ERROR_CHARS else clean[: MAX_ERROR_CHARS - 1] + "…"
