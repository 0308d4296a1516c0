"""The adapter for Claude on Amazon Bedrock: Anthropic's messages API with Amazon's address, key and framing.

The credential is a Bedrock API key, sent as a bearer token. IAM keys would need boto3 to sign requests, which
would find the operator's credentials.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator

from anthropic import AsyncAnthropicBedrock, AsyncStream
from anthropic.lib.bedrock._stream_decoder import AWSEventStreamDecoder
from plangate.spec.vendors import VENDORS

from app.llm.anthropic import AnthropicEvent, AnthropicProvider
from app.llm.anthropic_turn import AnthropicTurn
from app.llm.client import ModelClient
from app.llm.eventstream import Frame, FrameReader, InvalidFrame
from app.llm.messages import ModelRequest
from app.llm.provider import ProviderNotBuilt, Refused
from app.llm.sse import loads_event
from app.llm.wire import validate_key


def build(
    *,
    api_key: str | None,
    base_url: str | None,
    http_client: ModelClient | None,
    idle_timeout_s: float | None = None,
    region: str | None = None,
) -> BedrockProvider:
    """Build the provider for app.llm.registry.build_provider, which documents the arguments."""
    if base_url is None and not region:
        raise ProviderNotBuilt("A provider of kind 'bedrock' needs a region, such as us-east-1.")
    return BedrockProvider(
        AsyncAnthropicBedrock,
        http_client,
        idle_timeout_s,
        api_key=validate_key(api_key, is_required=base_url is None),
        aws_region=region or "",
        base_url=base_url or f"https://{VENDORS['bedrock'].host_in(region)}",
    )


class BedrockProvider(AnthropicProvider):
    """Claude on Bedrock. Turns keep the requested name: one model has several prices, by the prefix of its
    id."""

    def _turn(self, request: ModelRequest) -> AnthropicTurn:
        return AnthropicTurn(request.model, keep_requested_name=True)

    def _decoder(self) -> AWSEventStreamDecoder:
        return _BedrockDecoder(self._line_bytes)

    async def _open(self, request: ModelRequest) -> AsyncStream[object]:
        if not request.model.partition(";")[0].strip("."):
            raise Refused(f"The model id {request.model!r} cannot be part of a URL; use a Bedrock model id.")
        return await super()._open(request)


class _BedrockDecoder(AWSEventStreamDecoder):
    """Replacement for the SDK's decoder, which needs botocore."""

    def __init__(self, limit: int) -> None:
        self._frames = FrameReader(limit)

    async def aiter_bytes(self, iterator: AsyncIterator[bytes]) -> AsyncIterator[AnthropicEvent]:
        async for data in iterator:
            for frame in self._frames.feed(data):
                event = _event_from_frame(frame)
                if event is not None:
                    yield event


def _event_from_frame(frame: Frame) -> AnthropicEvent | None:
    """Return the Anthropic event in a frame as if it had arrived over SSE, or None for other frames."""
    headers = frame.headers
    kind = headers.get(":message-type")
    if kind == "event":
        return _event_from_payload(frame.payload) if headers.get(":event-type") == "chunk" else None
    if kind == "exception":
        return _error_event(headers.get(":exception-type"), _error_message(frame.payload))
    if kind == "error":
        return _error_event(headers.get(":error-code"), headers.get(":error-message"))
    raise InvalidFrame("it has no known message type")


def _event_from_payload(payload: bytes) -> AnthropicEvent:
    """Decode `{"bytes": <base64 of the event's JSON>}`. The reader of the event reports invalid JSON in
    it."""
    try:
        data = base64.b64decode(json.loads(payload)["bytes"], validate=True).decode()
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidFrame("it contains no bytes of an event") from error
    event = loads_event(data)
    kind = event.get("type") if isinstance(event, dict) else None
    return AnthropicEvent(event="error" if kind == "error" else "message", data=data)


def _error_event(kind: str | None, message: str | None) -> AnthropicEvent:
    error = {"type": kind, "message": message or "no message"}
    return AnthropicEvent(event="error", data=json.dumps({"type": "error", "error": error}))


def _error_message(payload: bytes) -> str | None:
    try:
        body = json.loads(payload)
    except ValueError:
        return None
    found = body.get("message", body.get("Message")) if isinstance(body, dict) else None
    return found if isinstance(found, str) else None
