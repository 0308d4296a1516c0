"""Requests as the client of a vendor's SDK would send them, past what the SDK does for each request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx2

from app.llm.client import ModelClient


class SdkRequests:
    """Posts bodies to one path: to the address of an SDK's client, with its headers, and with its errors for error
    responses. Errors of the connection stay httpx2's.

    It suits clients whose headers are the same for each turn.
    """

    def __init__(self, sdk_client: Any, path: str, http_client: ModelClient, timeout: httpx2.Timeout) -> None:
        self._sdk_client = sdk_client
        base: httpx2.URL = sdk_client.base_url
        self._url = base.copy_with(raw_path=base.raw_path.rstrip(b"/") + path.encode())
        headers = {**sdk_client.default_headers, **sdk_client.auth_headers}
        self._headers = {
            name: value for name, value in headers.items() if isinstance(value, str)
        }  # else omitted
        self._http_client = http_client
        self._timeout = timeout

    async def post(self, body: Mapping[str, Any]) -> httpx2.Response:
        """Send a body; return the response, which is not read yet. Raise the SDK's APIStatusError for an error response,
        and HTTPError or EgressDenied without a response."""
        request = self._http_client.build_request(
            "POST", self._url, json=body, headers=self._headers, timeout=self._timeout
        )
        response = await self._http_client.send(request, stream=True)
        if response.is_success:
            return response
        try:
            await response.aread()
        finally:
            await response.aclose()
        raise self._sdk_client._make_status_error_from_response(response)
