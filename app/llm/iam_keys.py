"""IAM keys as a tenant stores them: the JSON that `aws configure export-credentials` prints."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

from app.llm.provider import ProviderNotBuilt

HOW: Final = (
    'Store the JSON that `aws configure export-credentials` prints: {"AccessKeyId": ..., "SecretAccessKey": ...}, and '
    "SessionToken for temporary keys."
)


@dataclass(frozen=True, slots=True)
class IamKeys:
    """Keys that sign requests. The attributes have the names that botocore reads."""

    access_key: str
    secret_key: str = field(repr=False)
    token: str | None = field(default=None, repr=False)

    @classmethod
    def from_key(cls, text: str) -> IamKeys | None:
        """Return the keys in the text of a provider's key, or None if it is an API key.

        Raise ProviderNotBuilt if it is JSON and has no keys. The message has nothing of the text.
        """
        if not text.lstrip().startswith("{"):
            return None
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ProviderNotBuilt(f"The provider's key is not valid JSON. {HOW}") from error
        access, secret = _text(value, "AccessKeyId"), _text(value, "SecretAccessKey")
        if access is None or secret is None:
            raise ProviderNotBuilt(f"The provider's key has no IAM keys. {HOW}")
        return cls(access, secret, _text(value, "SessionToken"))


def _text(value: dict[str, Any], name: str) -> str | None:
    """Return one field of the credentials. Raise ProviderNotBuilt if it is not valid in an HTTP header."""
    part = value.get(name)
    if part is None:
        return None
    if not isinstance(part, str) or not part.isascii() or not part.isprintable() or not part or " " in part:
        raise ProviderNotBuilt(f"{name} of the provider's key has spaces or invalid characters. {HOW}")
    return part
