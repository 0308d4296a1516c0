"""The tree of errors that a caller can meet. api/errors.py maps each kind to HTTP in one table.

An error carries a `kind` (the stable slug of the problem's `type`), a `detail` that tells the reader what to
do next, and, for validation, the list of what is wrong with a JSON pointer each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, Final

MAX_LISTED_ERRORS: Final = 20
"""The errors that one answer lists."""

MAX_COLLECTED_ERRORS: Final = MAX_LISTED_ERRORS + 1
"""Errors to look for: with one more than are listed it is known that there are more."""

MAX_POINTER_CHARS: Final = 1000
MAX_MESSAGE_CHARS: Final = 1000
MAX_DETAIL_CHARS: Final = 2000


@dataclass(frozen=True, slots=True)
class FieldError:
    """One thing wrong with an input: `pointer` is an RFC 6901 JSON pointer into the body."""

    pointer: str
    message: str


def list_errors(errors: Iterable[FieldError]) -> dict[str, Any]:
    """Return the fields of a response that lists errors: the first ones, and whether there are more."""
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
    """Return the text, shortened if it is longer."""
    return text if len(text) <= chars else f"{text[: chars - 1]}…"


class PlangateError(Exception):
    """Something a caller can act on. Subclasses name what happened; `kind` is part of the API."""

    kind: ClassVar[str]
    title: ClassVar[str]

    def __init__(self, detail: str, *, extra: Mapping[str, Any] | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.extra = dict(extra or {})


class Malformed(PlangateError):
    """The bytes are not what they claim to be."""

    kind, title = "malformed", "The request is malformed"


class Unauthenticated(PlangateError):
    kind, title = "unauthenticated", "A valid API key is needed"


class Forbidden(PlangateError):
    kind, title = "forbidden", "The key may not do this"


class NotFound(PlangateError):
    """It does not exist, or belongs to another tenant: nobody learns which."""

    kind, title = "not_found", "There is no such thing"


class Conflict(PlangateError):
    kind, title = "conflict", "The request conflicts with the present state"


class PreconditionFailed(PlangateError):
    """What the request says must hold does not."""

    kind, title = "precondition_failed", "What the request is about is not what it says"


class Gone(PlangateError):
    kind, title = "gone", "It existed and has expired"


class TooLarge(PlangateError):
    kind, title = "too_large", "The body is too large"


class UnsupportedMediaType(PlangateError):
    kind, title = "unsupported_media_type", "The body is not of a kind that is taken here"


class RangeNotSatisfiable(PlangateError):
    """Nothing of the body is in the part that was asked for."""

    kind, title = "range_not_satisfiable", "The body has no such part"

    def __init__(self, size: int) -> None:
        super().__init__(f"The body has {size} bytes: ask for some of these, or for all without Range.")
        self.headers = {"content-range": f"bytes */{size}"}


class Invalid(PlangateError):
    """Well-formed but not acceptable; `flaws` says where."""

    kind, title = "invalid", "The request is not valid"

    def __init__(
        self, detail: str, errors: Sequence[FieldError] = (), *, extra: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(detail, extra=extra)
        self.errors = tuple(errors)


class TooManyRequests(PlangateError):
    kind, title = "too_many_requests", "A limit of the tenant is reached"

    def __init__(self, detail: str, *, retry_after_s: int = 1) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s


class Unavailable(PlangateError):
    """The service is draining or its database cannot be reached; the same request may work later."""

    kind, title = "unavailable", "The service is not available at the moment"

    def __init__(self, detail: str, *, retry_after_s: int = 1) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s


class TransactionConflict(Unavailable):
    """Two transactions waited for each other, and the database ended this one: nothing of it was done."""

    kind, title = "transaction_conflict", "Another request was in the way"
