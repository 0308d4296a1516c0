"""What can go wrong between a program and the service, as one tree of errors.

    PlangateError
    ├── NotAvailable          this version cannot do it
    ├── ServiceNotInstalled   there is no service to start on this machine
    ├── ServiceNotStarted     the service that was started here ended before it listened
    ├── ServiceUnavailable    the service does not answer
    └── ApiError              the service refused: status, type, detail, errors
        └── Malformed, Unauthenticated, Forbidden, NotFound, Conflict, Gone, TooLarge, InvalidRequest,
            TooManyRequests

What is wrong with a spec is a `SpecInvalid`, and what is wrong with an argument a ValueError or TypeError: both
before anything is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar


class PlangateError(Exception):
    """The base of everything that is raised here on purpose."""


class NotAvailable(PlangateError, NotImplementedError):
    """This version cannot do it; the message says what to do instead."""


class ServiceNotInstalled(PlangateError):
    """No address was given, and the service is not installed, so that none can be started."""


class ServiceNotStarted(PlangateError):
    """The service was started here and ended, or never said where it listens; the message has its last lines."""


class ServiceUnavailable(PlangateError):
    """The service did not answer for as long as it was waited for. The same call may work later."""


class ApiError(PlangateError):
    """The service refused a request.

    status, type: The HTTP status, and the stable slug of the problem.
    detail: What happened and what to do.
    errors: For invalid requests, `[{"pointer", "message"}]`.
    problem: The whole problem document; some kinds add fields, such as the decision that won.
    retry_after_s: When the service says that it is worth asking again; None where it does not.
    """

    status_code: ClassVar[int | None] = None

    def __init__(self, status: int, problem: Mapping[str, Any], retry_after_s: float | None = None) -> None:
        self.status = status
        self.problem = dict(problem)
        self.type = str(problem.get("type") or "unknown")
        self.detail = str(problem.get("detail") or problem.get("title") or "The service gave no reason.")
        self.errors: list[dict[str, str]] = list(problem.get("errors") or [])
        self.retry_after_s = retry_after_s
        lines = [f"{self.detail} ({status} {self.type})"]
        lines += [f"  {flaw.get('pointer') or '/'}: {flaw.get('message')}" for flaw in self.errors]
        super().__init__("\n".join(lines))


class Malformed(ApiError):
    """400: the service could not read the request."""

    status_code = 400


class Unauthenticated(ApiError):
    """401: the API key is missing, unknown, or of another tenant."""

    status_code = 401


class Forbidden(ApiError):
    """403: the API key may not do this."""

    status_code = 403


class NotFound(ApiError):
    """404: there is no such thing, or it is another tenant's."""

    status_code = 404


class Conflict(ApiError):
    """409: the request conflicts with the present state."""

    status_code = 409


class Gone(ApiError):
    """410: it existed and has expired."""

    status_code = 410


class TooLarge(ApiError):
    """413: the body is larger than the service takes."""

    status_code = 413


class InvalidRequest(ApiError):
    """422: well-formed and not acceptable; `errors` says where."""

    status_code = 422


class TooManyRequests(ApiError):
    """429: a limit of the tenant is reached."""

    status_code = 429


_BY_STATUS = {kind.status_code: kind for kind in ApiError.__subclasses__()}


def api_error(status: int, problem: Mapping[str, Any], retry_after_s: float | None = None) -> ApiError:
    """The error of an answer's status.

    Example:
        >>> api_error(404, {"type": "not_found", "detail": "There is no query 'qry_1'."})
        NotFound("There is no query 'qry_1'. (404 not_found)")
    """
    return _BY_STATUS.get(status, ApiError)(status, problem, retry_after_s)
