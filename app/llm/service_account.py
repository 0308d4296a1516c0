"""Create bearer tokens, signed with the key of a Google Cloud service account.

Google's APIs accept self-signed tokens (https://google.aip.dev/auth/4111). Nothing is fetched, so the service
calls no address from the key, which a tenant wrote.
"""

from __future__ import annotations

import base64
import json
import re
import time
from dataclasses import dataclass, field
from typing import Any, Final, Self

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_der_private_key

from app.llm.provider import ProviderNotBuilt

SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
LIFETIME_S: Final = 3600
"""Google's maximum."""

MAX_PRIME_BITS: Final = 1024
"""Maximum size of each of the key's two primes. Google's keys have 2048 bits in total."""

_PEM: Final = re.compile(
    r"\s*-----BEGIN PRIVATE KEY-----([A-Za-z0-9+/=\s]{1,8000})-----END PRIVATE KEY-----\s*"
)
_RSA: Final = bytes.fromhex("020100300d06092a864886f70d0101010500")
"""The bytes after the length in PKCS#8: the version, and RSA as the algorithm."""


@dataclass(frozen=True, slots=True)
class ServiceAccount:
    """A service account, with its key."""

    email: str
    key_id: str
    _key: RSAPrivateKey = field(repr=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read the JSON of a key file. Raise ProviderNotBuilt; the message contains nothing of the file."""
        try:
            info = json.loads(text)
            email, key_id, pem = info["client_email"], info["private_key_id"], info["private_key"]
            key = _load_key(pem)
        except (ValueError, TypeError, KeyError, RecursionError, UnsupportedAlgorithm):
            key = None
        if key is None or not isinstance(email, str) or not isinstance(key_id, str):
            raise ProviderNotBuilt(
                "The provider's key looks like the JSON of a service account but is invalid. Store the key file "
                "as downloaded from Google, with client_email, private_key_id and private_key."
            )
        return cls(email, key_id, key)

    def token(self) -> str:
        """Return a token for Google Cloud that is valid for an hour. Takes about a millisecond."""
        now = int(time.time())
        head = {"alg": "RS256", "typ": "JWT", "kid": self.key_id}
        claims = {"iss": self.email, "sub": self.email, "scope": SCOPE, "iat": now, "exp": now + LIFETIME_S}
        signed = f"{_encode_json(head)}.{_encode_json(claims)}"
        signature = self._key.sign(signed.encode(), PKCS1v15(), SHA256())
        return f"{signed}.{_base64(signature)}"


def _load_key(pem: str) -> RSAPrivateKey | None:
    """Return the key in a PEM, or None if it is not like Google's keys.

    OpenSSL tests for primes while holding the interpreter's lock: half a minute for a prime of 10,000 bits.
    So their size is checked first, and no other type of key is loaded at all.
    """
    match = _PEM.fullmatch(pem)
    data = base64.b64decode(match.group(1)) if match else b""
    if data[4 : 4 + len(_RSA)] != _RSA:
        return None
    unchecked = load_der_private_key(data, password=None, unsafe_skip_rsa_key_validation=True)
    if not isinstance(unchecked, RSAPrivateKey):
        return None
    numbers = unchecked.private_numbers()
    if max(numbers.p, numbers.q).bit_length() > MAX_PRIME_BITS or numbers.public_numbers.e != 65537:
        return None
    checked = load_der_private_key(data, password=None)
    return checked if isinstance(checked, RSAPrivateKey) else None


def _encode_json(part: dict[str, Any]) -> str:
    return _base64(json.dumps(part, separators=(",", ":")).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
