"""Errors that callers can act on. api/errors.py maps each kind to an HTTP status in one table.

An error has a `kind` (the stable slug in the problem's `type`) and a `detail` that says what to do next. A
validation error also lists what is wrong, each with a JSON pointer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, Final

MAX_LISTED_ERRORS: Final = 20
"""Maximum number of errors in one response."""

MAX_COLLECTED_ERRORS: Final = MAX_LISTED_ERRORS + 1
"""Where to stop collecting errors: one more than are listed shows that there are more."""

MAX_POINTER_CHARS: Final = 1000
MAX_MESSAGE_CHARS: Final = 1000
MAX_DETAIL_CHARS: Final = 2000


@dataclass(frozen=True, slots=True)
class FieldError:
    """One error in an input. `pointer` is an RFC 6901 JSON pointer into the body."""

    pointer: str
    message: str


def list_errors(errors: Iterable[FieldError]) -> dict[str, Any]:
    """Return the response fields that list errors: the first ones, and whether there are more."""
    first = list(islice(errors, MAX_COLLECTED_ERRORS))
    return {
        "errors": [
            {
                "pointer": truncate(error.pointer, MAX_POINTER_CHARS),
                "message": truncate(error.message, MAX_MESSAGE_CHARS),
            }
            for error in first[:MAX_LISTED_ERRORS]
        ],
        "hasMoreErrors": len(first) > MAX_LISTED_ERRORS,
    }


def truncate(text: str, chars: int) -> str:
    """Return the text, shortened to `chars` characters if it is longer."""
    return text if len(text) <= chars else f"{text[: chars - 1]}…"


class PlangateError(Exception):
    """Base of the errors that a caller can act on. Subclasses name what happened; `kind` is part of the
    API."""

    kind: ClassVar[str]
    title: ClassVar[str]

    def __init__(
        self, detail: str, errors: Sequence[FieldError] = (), *, extra: Mapping[str, Any] | None = None
    ) -> None:
        """Args:
        detail: What is wrong, and what to do next.
        errors: Where it is wrong, in the body.
        extra: Other fields of the response.
        """
        super().__init__(detail)
        self.detail = detail
        self.errors = tuple(errors)
        self.extra = dict(extra or {})


class Malformed(PlangateError):
    """The bytes are not valid in the format that they claim to be."""

    kind, title = "malformed", "The request is malformed"


class Unauthenticated(PlangateError):
    kind, title = "unauthenticated", "A valid API key is required"


class Forbidden(PlangateError):
    kind, title = "forbidden", "The key lacks permission for this"


class NotFound(PlangateError):
    """The resource does not exist or belongs to another tenant. The response does not say which."""

    kind, title = "not_found", "Not found"


class Conflict(PlangateError):
    kind, title = "conflict", "The request conflicts with the current state"


class PreconditionFailed(PlangateError):
    """A precondition of the request (`If-Match`, `If-None-Match`) failed."""

    kind, title = "precondition_failed", "Precondition failed"


class Gone(PlangateError):
    kind, title = "gone", "The resource existed and has expired"


class TooLarge(PlangateError):
    kind, title = "too_large", "The body is too large"


class UnsupportedMediaType(PlangateError):
    kind, title = "unsupported_media_type", "The media type of the body is not supported"


class RangeNotSatisfiable(PlangateError):
    """The requested range contains no byte of the body."""

    kind, title = "range_not_satisfiable", "The range is outside the body"

    def __init__(self, size: int) -> None:
        super().__init__(f"The body has {size} bytes. Request a range within it, or omit Range.")
        self.headers = {"content-range": f"bytes */{size}"}


class WrongCell(PlangateError):
    """The tenant of the request is in another cell, which `cell` names."""

    kind, title = "wrong_cell", "The request belongs to another cell"

    def __init__(self, detail: str, cell: str) -> None:
        super().__init__(detail, extra={"cell": cell})
        self.headers = {"plangate-cell": cell}


class Invalid(PlangateError):
    """The request is well-formed but not acceptable; `errors` says where."""

    kind, title = "invalid", "The request is not valid"


class TooManyRequests(PlangateError):
    kind, title = "too_many_requests", "A limit of the tenant was reached"

    def __init__(self, detail: str, *, retry_after_s: int = 1) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s


class Unavailable(PlangateError):
    """The service is draining or its database cannot be reached. The same request may succeed later."""

    kind, title = "unavailable", "The service is temporarily unavailable"

    def __init__(self, detail: str, *, retry_after_s: int = 1) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s


class TenantNotReady(Unavailable):
    """The operator is moving the tenant, or importing it."""

    kind, title = "tenant_not_ready", "The tenant is being moved"

    def __init__(self, tenant: str) -> None:
        super().__init__(
            f"The operator is moving the tenant {tenant!r}. Send the request again.", retry_after_s=5
        )


class TransactionConflict(Unavailable):
    """The database rolled back this transaction because it deadlocked with another one. Nothing was
    changed."""

    kind, title = "transaction_conflict", "The transaction conflicted with another one"
