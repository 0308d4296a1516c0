"""The errors between a program and the service, as one class hierarchy.

    PlangateError
    ├── ServiceNotInstalled   there is no service to start on this machine
    ├── ServiceNotStarted     the service that was started here ended before it listened
    ├── ServiceUnavailable    the service does not answer
    └── ApiError              the service refused: status, type, detail, errors
        └── Malformed, Unauthenticated, Forbidden, NotFound, Conflict, Gone, TooLarge, WrongCell,
            InvalidRequest, TooManyRequests

What is wrong with a spec is a `SpecInvalid`, and what is wrong with an argument a ValueError or TypeError: both
before anything is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar


class PlangateError(Exception):
    """The base of everything that is raised on purpose when a runtime is opened or used.

    What is wrong with an argument is a ValueError or TypeError instead, and with a spec a `SpecInvalid`.

    Example:
        >>> async def text_or_reason(runtime, prompt):
        ...     try:
        ...         events = [event async for event in runtime.query(prompt, "thread-1")]
        ...     except PlangateError as error:
        ...         return f"not asked: {error}"
        ...     return events[-1].get("output")
    """


class ServiceNotInstalled(PlangateError):
    """No address was given, and the service is not installed, so that none can be started.

    Example:
        >>> async def open_runtime(spec):
        ...     try:
        ...         return await create_runtime(spec)
        ...     except ServiceNotInstalled:
        ...         return await create_runtime(spec, url="https://plangate.example.com", api_key="...")
    """


class ServiceNotStarted(PlangateError):
    """The service was started here and ended, or never said where it listens; the message has its last lines.

    Example:
        >>> async def open_runtime(spec):
        ...     try:
        ...         return await create_runtime(spec)
        ...     except ServiceNotStarted as error:
        ...         raise SystemExit(f"is another service using the same data?\\n{error}") from error
    """


class ServiceUnavailable(PlangateError):
    """The service did not answer for as long as it was waited for. The same call may work later.

    Example:
        >>> async def followed(runtime, query_id, seen):
        ...     try:
        ...         async for event in runtime.query(None, None, resume=query_id):
        ...             seen.append(event)
        ...     except ServiceUnavailable:
        ...         return seen[-1] if seen else query_id  # what `resume` takes when it is back
    """


class ApiError(PlangateError):
    """The service rejected a request. Each status that it uses has a subclass.

    Args:
        status: The HTTP status.
        problem: The whole problem document; some kinds add fields, such as the decision that won.
        retry_after_s: After how many seconds it is worth asking again; None where the service does not say.

    Attributes:
        type: The stable slug of the problem.
        detail: What happened and what to do.
        errors: For invalid requests, `[{"pointer", "message"}]`: the first 20.
        has_more_errors: Whether there are more errors than `errors` lists.

    Example:
        >>> error = ApiError(409, {"type": "conflict", "detail": "It was decided already."})
        >>> error.type, str(error)
        ('conflict', 'It was decided already. (409 conflict)')
    """

    status_code: ClassVar[int | None] = None

    def __init__(self, status: int, problem: Mapping[str, Any], retry_after_s: float | None = None) -> None:
        self.status = status
        self.problem = dict(problem)
        self.type = str(problem.get("type") or "unknown")
        self.detail = str(problem.get("detail") or problem.get("title") or "The service gave no reason.")
        self.errors: list[dict[str, str]] = list(problem.get("errors") or [])
        self.has_more_errors = problem.get("hasMoreErrors") is True
        self.retry_after_s = retry_after_s
        lines = [f"{self.detail} ({status} {self.type})"]
        lines += [f"  {error.get('pointer') or '/'}: {error.get('message')}" for error in self.errors]
        lines += ["  There are more errors."] if self.has_more_errors else []
        super().__init__("\n".join(lines))


class Malformed(ApiError):
    """400: the service could not read the request.

    Example:
        >>> raise Malformed(400, {"type": "malformed", "detail": "The body is not JSON."})
        Traceback (most recent call last):
        plangate.errors.Malformed: The body is not JSON. (400 malformed)
    """

    status_code = 400


class Unauthenticated(ApiError):
    """401: the API key is missing, unknown, or of another tenant.

    Example:
        >>> async def open_runtime(spec, url, key):
        ...     try:
        ...         return await create_runtime(spec, url=url, api_key=key)
        ...     except Unauthenticated:
        ...         raise SystemExit("PLANGATE_API_KEY is no key of this tenant") from None
    """

    status_code = 401


class Forbidden(ApiError):
    """403: the API key may not do this.

    Example:
        >>> async def approve(runtime, approval, subject):
        ...     try:
        ...         await runtime.respond_to_approval(approval["id"], "approve", digest=subject.digest)
        ...     except Forbidden:
        ...         print("this key has no scope approvals:decide")
    """

    status_code = 403


class NotFound(ApiError):
    """404: there is no such thing, or it is another tenant's.

    Example:
        >>> async def status_of(runtime, query_id):
        ...     try:
        ...         return (await runtime.get_query(query_id))["status"]
        ...     except NotFound:
        ...         return None
    """

    status_code = 404


class Conflict(ApiError):
    """409: the request conflicts with the present state.

    Example:
        >>> async def reject(runtime, approval_id):
        ...     try:
        ...         await runtime.respond_to_approval(approval_id, "reject", "Too expensive.")
        ...     except Conflict as error:
        ...         print("somebody was faster:", error.problem)
    """

    status_code = 409


class Gone(ApiError):
    """410: it existed and has expired.

    Example:
        >>> async def basket_of(runtime, handle):
        ...     try:
        ...         return await runtime.resolve_reference(handle["kind"], handle["id"])
        ...     except Gone:
        ...         return None  # its ttl_ms has passed
    """

    status_code = 410


class TooLarge(ApiError):
    """413: the body is larger than the service takes.

    Example:
        >>> async def keep(runtime, Basket, items):
        ...     try:
        ...         return await runtime.create_reference(Basket, {"items": items})
        ...     except TooLarge:
        ...         half = len(items) // 2
        ...         return await runtime.create_reference(Basket, {"items": items[:half]})
    """

    status_code = 413


class WrongCell(ApiError):
    """421: the tenant of the key is in another cell. The library sends the request there if it knows the address (`cell_urls`).

    Example:
        >>> error = WrongCell(421, {"type": "wrong_cell", "detail": "Send it to 'eu2'.", "cell": "eu2"})
        >>> error.cell
        'eu2'
    """

    status_code = 421

    @property
    def cell(self) -> str:
        """Return the name of the cell to send the request to."""
        return str(self.problem.get("cell") or "")


class InvalidRequest(ApiError):
    """422: well-formed and not acceptable; `errors` says where.

    Example:
        >>> error = {"pointer": "/inputs/n", "message": "must be integer"}
        >>> print(InvalidRequest(422, {"type": "invalid", "detail": "No.", "errors": [error]}))
        No. (422 invalid)
          /inputs/n: must be integer
    """

    status_code = 422


class TooManyRequests(ApiError):
    """429: a limit of the tenant is reached; the library has asked again for a while before it says so.

    Example:
        >>> TooManyRequests(429, {"detail": "The tenant's queue is full."}, retry_after_s=5).retry_after_s
        5
    """

    status_code = 429


_BY_STATUS = {kind.status_code: kind for kind in ApiError.__subclasses__()}


def api_error(status: int, problem: Mapping[str, Any], retry_after_s: float | None = None) -> ApiError:
    """Return the error for the status of a response.

    Example:
        >>> api_error(404, {"type": "not_found", "detail": "There is no query 'qry_1'."})
        NotFound("There is no query 'qry_1'. (404 not_found)")
    """
    return _BY_STATUS.get(status, ApiError)(status, problem, retry_after_s)
