"""From what a vendor answers, or a connection does, to the faults of the protocol; shared by the vendors.

A vendor's SDK is never imported here: its exceptions are told apart by status, by the word in the error body,
and by the names of their classes, which each vendor's file lists.
"""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Mapping
from typing import Any, Final

import anyio
import httpx2
import pydantic

from app.base.clock import retry_after_s
from app.base.egress import EgressRefused
from app.llm.eventstream import InvalidFrame
from app.llm.messages import Usage
from app.llm.provider import (
    BrokenTurn,
    ContextOverflow,
    NotAuthorized,
    Overloaded,
    ProviderFault,
    RateLimited,
    Refused,
    ServerFault,
    TooMuchSent,
    Unreachable,
)

MAX_MESSAGE_CHARS: Final = 500
"""How much of a vendor's message a fault repeats."""

STATUS_FAULTS: Final[Mapping[int, type[ProviderFault]]] = {
    400: Refused,
    401: NotAuthorized,
    402: Refused,
    403: NotAuthorized,
    404: Refused,
    408: Unreachable,
    409: Overloaded,  # a lock of the vendor's that timed out; the SDKs would retry it too
    412: Refused,
    413: Refused,
    422: Refused,
    424: ServerFault,  # Bedrock: the model itself failed
    429: RateLimited,
    431: Refused,
    499: Unreachable,
    500: ServerFault,
    501: ServerFault,
    502: ServerFault,
    503: Overloaded,
    504: ServerFault,
    529: Overloaded,
}

KIND_FAULTS: Final[Mapping[str, type[ProviderFault]]] = {
    # Anthropic, `error.type`
    "invalid_request_error": Refused,
    "authentication_error": NotAuthorized,
    "permission_error": NotAuthorized,
    "billing_error": Refused,
    "not_found_error": Refused,
    "request_too_large": Refused,
    "rate_limit_error": RateLimited,
    "timeout_error": Unreachable,
    "api_error": ServerFault,
    "overloaded_error": Overloaded,
    "conflict_error": Overloaded,
    # OpenAI and servers compatible with it, `error.type` or `error.code`
    "server_error": ServerFault,
    "internal_error": ServerFault,
    "rate_limit_exceeded": RateLimited,
    "tokens": RateLimited,
    "requests": RateLimited,
    "service_unavailable": Overloaded,
    "engine_overloaded": Overloaded,
    "context_length_exceeded": ContextOverflow,
    "invalid_api_key": NotAuthorized,
    # Bedrock, the name of an exception in the stream
    "internalServerException": ServerFault,
    "modelStreamErrorException": ServerFault,
    "modelTimeoutException": Unreachable,
    "serviceUnavailableException": Overloaded,
    "throttlingException": RateLimited,
    "validationException": Refused,
}

BUDGET_CODES: Final = frozenset(
    {"insufficient_quota", "enforced_spend_limit_reached", "contract_spend_limit_reached"}
)
"""Codes that come with 429 although waiting does not help: a budget at the vendor is spent."""

_OVERFLOW = re.compile(
    r"prompt is too long|context[ _-]?length|context window|maximum context|exceeds? (the )?(available )?context"
    r"|input is too long|too many (input )?tokens|input token count",
    re.IGNORECASE,
)

CONNECTION_ERRORS: Final = (
    httpx2.HTTPError,
    httpx2.StreamError,
    OSError,
    anyio.EndOfStream,
    EgressRefused,
)
"""What a broken or refused connection raises. httpx2 lets errors of TLS through: OSErrors, too."""

CHUNK_ERRORS: Final = (
    json.JSONDecodeError,
    UnicodeDecodeError,
    pydantic.ValidationError,
    RecursionError,
    InvalidFrame,
)
"""What a chunk raises that is not what it should be."""


def fault_from_sdk(
    error: Exception, classes: Mapping[str, type[ProviderFault] | None], usage: Usage | None = None
) -> ProviderFault:
    """The fault of an exception of an SDK.

    Told by its class where `classes`, the vendor's table, says which; else by the answer it carries (an error
    in the middle of a stream has a body, and the status 200 or none); else by its cause.
    """
    named = classes.get(type(error).__name__)
    if named is not None and named is not Unreachable:
        return named(clip_message(str(error)), usage=usage)
    status, body = getattr(error, "status_code", None), getattr(error, "body", None)
    if status is None and not body:
        return fault_from_connection(error, usage)
    kind, code, message = parse_error_body(body)
    response = getattr(error, "response", None)
    return fault_from_status(
        status or 200,
        kind=kind,
        code=code,
        message=message or str(error),
        headers={} if response is None else response.headers,
        usage=usage,
    )


def fault_from_status(
    status: int,
    *,
    kind: str | None,
    code: str | None,
    message: str,
    headers: Mapping[str, str],
    usage: Usage | None = None,
) -> ProviderFault:
    """The fault of an error answer. `kind` and `code` are the words of its body.

    A status below 400 is either an error event in a stream that began well, where the words decide, or a
    redirect, which is never followed.
    """
    shown = clip_message(message)
    if code in BUDGET_CODES:
        return Refused(f"The budget at the provider is spent: {shown}", usage=usage)
    limited = any(KIND_FAULTS.get(word or "") is RateLimited for word in (kind, code))
    of_the_prompt = status in (400, 413, 422) or (status < 300 and not limited)
    if of_the_prompt and (code == "context_length_exceeded" or _OVERFLOW.search(message)):
        return ContextOverflow(f"The prompt is larger than the model's window: {shown}", usage=usage)
    if 300 <= status < 400:
        return Refused(
            f"The provider redirects ({status}), which is not followed; set baseUrl to the final address.",
            usage=usage,
        )
    fault = _fault_type(status, kind, code)
    prefix = f"The provider answered {status}" if status >= 400 else "The provider broke off"
    return fault(f"{prefix}: {shown}", retry_after_s=retry_after_s(headers), usage=usage)


def _fault_type(status: int, kind: str | None, code: str | None) -> type[ProviderFault]:
    if status >= 400:
        return STATUS_FAULTS.get(status) or (ServerFault if status >= 500 else Refused)
    for word in (code, kind):
        if word is None:
            continue
        if word in KIND_FAULTS:
            return KIND_FAULTS[word]
        if word.isdecimal() and 400 <= int(word[:4]) < 600:
            return _fault_type(int(word[:4]), None, None)
    return ServerFault


def fault_from_connection(error: BaseException, usage: Usage | None = None) -> ProviderFault:
    """The fault of an exception that came with no answer, or in the middle of one.

    An EgressRefused below it is a refusal with its message. The words of other errors are not repeated where
    they may hold a header, such as the key.
    """
    for cause in _cause_chain(error):
        if isinstance(cause, EgressRefused | TooMuchSent):
            return Refused(str(cause), usage=usage)
        if isinstance(cause, httpx2.LocalProtocolError | httpx2.UnsupportedProtocol | httpx2.InvalidURL):
            return Refused(
                "The request to the provider is not valid HTTP; check baseUrl and the key.", usage=usage
            )
        if isinstance(cause, httpx2.DecodingError):
            return BrokenTurn("The provider's answer could not be decompressed.", usage=usage)
        if isinstance(cause, httpx2.TimeoutException | TimeoutError):
            return Unreachable(
                f"The provider stayed silent for too long ({type(cause).__name__}).", usage=usage
            )
        if isinstance(cause, ssl.SSLCertVerificationError):
            return Unreachable(
                f"The provider's certificate is not valid: {clip_message(cause.verify_message)}", usage=usage
            )
    return Unreachable(f"The connection to the provider failed ({_deepest_name(error)}).", usage=usage)


def fault_from_chunk(error: Exception, usage: Usage | None = None) -> BrokenTurn:
    """The fault of a chunk that cannot be read."""
    if isinstance(error, pydantic.ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        return BrokenTurn(
            f"A chunk of the provider's stream is malformed: {where}: {first['msg']}", usage=usage
        )
    if isinstance(error, InvalidFrame):
        return BrokenTurn(f"A frame of the provider's stream is malformed: {error}.", usage=usage)
    return BrokenTurn(f"A chunk of the provider's stream is not JSON ({type(error).__name__}).", usage=usage)


def parse_error_body(body: object) -> tuple[str | None, str | None, str | None]:
    """`(type, code, message)` of an error body, `{"error": {...}}` or what is inside; each where it is there.

    Anthropic keeps its stable code at `details.error_code`; OpenAI's `code` may be a number; Google may wrap
    the body in a list, and Amazon may write `Message`.
    """
    if isinstance(body, list) and body:
        body = body[0]
    inner: Any = body.get("error", body) if isinstance(body, dict) else body
    if not isinstance(inner, dict):
        return None, None, inner if isinstance(inner, str) and inner else None
    details = inner.get("details")
    code = details.get("error_code") if isinstance(details, dict) else inner.get("code")
    kind, message = inner.get("type"), inner.get("message") or inner.get("Message")
    return (
        kind if isinstance(kind, str) else None,
        str(code) if isinstance(code, str | int) else None,
        message if isinstance(message, str) and message else None,
    )


def clip_message(message: str) -> str:
    """One line, of a length that can be shown."""
    line = " ".join(message.split())
    return line if len(line) <= MAX_MESSAGE_CHARS else line[: MAX_MESSAGE_CHARS - 1] + "…"


def _cause_chain(error: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in found:
        found.append(current)
        current = current.__cause__ or current.__context__
    return found


def _deepest_name(error: BaseException) -> str:
    return type(_cause_chain(error)[-1]).__name__
