"""The adapter for Claude on Google's Vertex AI: Anthropic's messages API with Google's address and tokens.

The credential is an access token, or the key of a service account, which signs a token for each turn.
Google's own library is not used: it would look for the operator's account if the spec has none.
"""

from __future__ import annotations

from collections.abc import Callable

from anthropic import AsyncAnthropicVertex
from plangate.spec.vendors import VENDORS

from app.llm.anthropic import AnthropicProvider
from app.llm.client import ModelClient
from app.llm.messages import ModelRequest
from app.llm.provider import ProviderNotBuilt
from app.llm.response_stream import ResponseStream
from app.llm.service_account import ServiceAccount
from app.llm.wire import validate_key


def build(
    *,
    api_key: str | None,
    base_url: str | None,
    http_client: ModelClient | None,
    idle_timeout_s: float | None = None,
    region: str | None = None,
    project: str | None = None,
) -> VertexProvider:
    """Build the provider for app.llm.registry.build_provider, which documents the arguments."""
    if not (region and project):
        raise ProviderNotBuilt("A provider of kind 'vertex' needs a project and a region.")
    token = _token_source(api_key, is_required=base_url is None)
    address = base_url or f"https://{VENDORS['vertex'].host_in(region)}/v1"
    return VertexProvider(
        token, http_client, idle_timeout_s, project=project, region=region, base_url=address
    )


class VertexProvider(AnthropicProvider):
    """Claude on Vertex AI. `token` returns the access token and is called for each turn."""

    _client: AsyncAnthropicVertex

    def __init__(
        self,
        token: Callable[[], str],
        http_client: ModelClient | None,
        idle_timeout_s: float | None,
        *,
        project: str,
        region: str,
        base_url: str,
    ) -> None:
        super().__init__(
            AsyncAnthropicVertex,
            http_client,
            idle_timeout_s,
            access_token=token(),
            project_id=project,
            region=region,
            base_url=base_url,
        )
        self._token = token

    async def _open(self, request: ModelRequest) -> ResponseStream:
        self._client.access_token = self._token()
        return await super()._open(request)


def _token_source(api_key: str | None, *, is_required: bool) -> Callable[[], str]:
    if api_key and api_key.lstrip().startswith("{"):
        return ServiceAccount.from_json(api_key).token
    key = validate_key(api_key, is_required=is_required)
    return lambda: key
