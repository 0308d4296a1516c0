"""The headers that a spec gives to a transport: literal, or the name of a secret that is read when the call is made."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import replace

from plangate.spec.transport_checks import is_header_value
from plangate.spec.transports import HeaderValue, SecretRef

from app.tenancy.secrets import Secrets
from app.tools.models import NotDelivered, OutcomeUnknown
from app.tools.results import ToolError, ToolResult

LEAST_HIDDEN_CHARS = 8
HIDDEN = "(withheld)"


class SecretMissing(Exception):
    """A header names a secret that the tenant does not have, or that no header can carry. Nothing was sent."""

    def __init__(self, header: str, secret: str, why: str = "does not exist") -> None:
        super().__init__(
            f"The header {header!r} takes the secret {secret!r}, which {why}: set it with "
            f"PUT /secrets/{secret}. Nothing was sent."
        )


async def resolve_headers(
    secrets: Secrets, tenant: str, headers: Mapping[str, HeaderValue]
) -> dict[str, str]:
    """Return the headers to send. Raise SecretMissing."""
    values: dict[str, str] = {}
    for name, value in headers.items():
        if isinstance(value, SecretRef):
            secret = await secrets.read(tenant, value.secret)
            if secret is None:
                raise SecretMissing(name, value.secret)
            if not is_header_value(secret):  # otherwise the client's error would repeat it
                raise SecretMissing(name, value.secret, "has characters that no header carries")
            values[name] = secret
        else:
            values[name] = value
    return values


def redact(text: str, headers: Mapping[str, HeaderValue], values: Mapping[str, str]) -> str:
    """Return a text from the receiver without the secrets that were sent to it, which a response may repeat. Very
    short secrets are left in, because they may be ordinary words."""
    secrets = [values[name] for name, value in headers.items() if isinstance(value, SecretRef)]
    parts = {part for secret in secrets for part in (secret, *secret.split())}
    for part in sorted(parts, key=len, reverse=True):
        if len(part) >= LEAST_HIDDEN_CHARS:
            text = text.replace(part, HIDDEN)
    return text


async def with_redacted_errors(
    sending: Awaitable[ToolResult], headers: Mapping[str, HeaderValue], values: Mapping[str, str]
) -> ToolResult:
    """Return what a sender returns, with the secrets of its headers redacted from errors. Raise
    NotDelivered or OutcomeUnknown."""
    try:
        outcome = await sending
    except NotDelivered as error:
        raise NotDelivered(redact(str(error), headers, values), error.retry_after_s) from None
    except OutcomeUnknown as error:
        raise OutcomeUnknown(redact(str(error), headers, values)) from None
    if isinstance(outcome, ToolError):
        return replace(outcome, message=redact(outcome.message, headers, values))
    return outcome
