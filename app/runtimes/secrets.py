"""Replace literal provider keys in a spec by secrets before it is stored, hashed or shown."""

from __future__ import annotations

import hashlib
from typing import Any


def move_secrets(spec: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the spec with each literal `providers.<name>.apiKey` replaced by a secret's name, and those
    secrets.

    The given spec is not modified. The secret's name depends on the provider's name only, so that a rotated
    key does not create a new version.
    """
    literals: dict[str, str] = {}
    providers = spec.get("providers")
    if isinstance(providers, dict):
        copies = {
            name: dict(options) if isinstance(options, dict) else options
            for name, options in providers.items()
        }
        spec = {**spec, "providers": copies}
        for name, provider in copies.items():
            if not isinstance(provider, dict):
                continue
            for field in ("apiKey", "api_key"):
                value = provider.get(field)
                if isinstance(value, str):
                    secret = secret_name(str(spec.get("name") or "default"), name)
                    literals[secret] = value
                    provider[field] = {"secret": secret}
    return spec, literals


def secret_name(runtime: str, provider: str) -> str:
    digest = hashlib.sha256(f"{runtime}/{provider}".encode()).hexdigest()[:12]
    return f"provider-{digest}"
