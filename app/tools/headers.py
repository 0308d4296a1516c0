"""Headers that a spec gives to a transport: literal, or the name of a secret that is read when the call is made."""

from __future__ import annotations

from collections.abc import Mapping

from plangate.spec.transport_checks import fits_a_header
from plangate.spec.transports import HeaderValue, SecretRef

from app.tenancy.secrets import Secrets


class SecretMissing(Exception):
    """A header names a secret that the tenant does not have, or that no header can carry. Nothing was sent."""

    def __init__(self, header: str, secret: str, why: str = "does not exist") -> None:
        super().__init__(
            f"The header {header!r} takes the secret {secret!r}, which {why}: set it with "
            f"PUT /secrets/{secret}. Nothing was sent."
        )


async def resolved(secrets: Secrets, tenant: str, headers: Mapping[str, HeaderValue]) -> dict[str, str]:
    """The headers as they go out. Raises SecretMissing."""
    values: dict[str, str] = {}
    for name, value in headers.items():
        if isinstance(value, SecretRef):
            kept = await secrets.read(tenant, value.secret)
            if kept is None:
                raise SecretMissing(name, value.secret)
            if not fits_a_header(kept):  # or the client would repeat it in its complaint
                raise SecretMissing(name, value.secret, "has characters that no header carries")
            values[name] = kept
        else:
            values[name] = value
    return values
