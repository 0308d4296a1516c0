"""Where the vendors are reached when nobody chose another address. Pure: known without their SDKs."""

from __future__ import annotations

from typing import Final

_HOSTS: Final = {"anthropic": "api.anthropic.com", "openai": "api.openai.com"}
_VERTEX_MULTI_REGIONS: Final = {
    "global": "aiplatform.googleapis.com",
    "us": "aiplatform.us.rep.googleapis.com",
    "eu": "aiplatform.eu.rep.googleapis.com",
}


def host_of(kind: str, region: str | None = None) -> str:
    """Return the host that a provider of this kind sends its key to. `region` is for `bedrock` and
    `vertex`."""
    if kind == "bedrock":
        return f"bedrock-runtime.{region}.amazonaws.com"
    if kind == "vertex":
        return _VERTEX_MULTI_REGIONS.get(region or "") or f"{region}-aiplatform.googleapis.com"
    return _HOSTS[kind]
