"""Bearer tokens from the key of a service account of Google Cloud, signed here.

Google's APIs take such a self-signed token as it is (https://google.aip.dev/auth/4111): nothing is fetched,
so the key, which a tenant wrote, names no address that the service would call.
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
"""The longest that Google accepts."""

MAX_PRIME_BITS: Final = 1024
"""Of the two primes of a key: those that Google gives have 2048 bits together."""

_PEM: Final = re.compile(
    r"\s*-----BEGIN PRIVATE KEY-----([A-Za-z0-9+/=\s]{1,8000})-----END PRIVATE KEY-----\s*"
)
_RSA: Final = bytes.fromhex("020100300d06092a864886f70d0101010500")
"""What PKCS#8 writes after its length: the version, and that the key is for RSA."""


@dataclass(frozen=True, slots=True)
class ServiceAccount:
    """The account that a key file speaks for."""

    email: str
    key_id: str
    _key: RSAPrivateKey = field(repr=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read the JSON of a key file. Raises ProviderNotBuilt, without a word of it."""
        try:
            info = json.loads(text)
            email, key_id, pem = info["client_email"], info["private_key_id"], info["private_key"]
            key = _load_key(pem)
        except (ValueError, TypeError, KeyError, RecursionError, UnsupportedAlgorithm):
            key = None
        if key is None or not isinstance(email, str) or not isinstance(key_id, str):
            raise ProviderNotBuilt(
                "The provider's key begins like the JSON of a service account but is not a whole one: store "
                "the key file as Google gave it, with client_email, private_key_id and private_key."
            )
        return cls(email, key_id, key)

    def token(self) -> str:
        """A token for Google Cloud, from now on for an hour. Costs about a millisecond."""
        now = int(time.time())
        head = {"alg": "RS256", "typ": "JWT", "kid": self.key_id}
        claims = {"iss": self.email, "sub": self.email, "scope": SCOPE, "iat": now, "exp": now + LIFETIME_S}
        signed = f"{_encode_json(head)}.{_encode_json(claims)}"
        signature = self._key.sign(signed.encode(), PKCS1v15(), SHA256())
        return f"{signed}.{_base64(signature)}"


def _load_key(pem: str) -> RSAPrivateKey | None:
    """The key in a PEM, if it is as Google makes them. OpenSSL tests for primes while the interpreter's lock is held:
    half a minute for one of 10,000 bits. So their size is looked at first, and no other kind of key is loaded at all."""
    found = _PEM.fullmatch(pem)
    data = base64.b64decode(found.group(1)) if found else b""
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
