"""The adapter for Amazon Bedrock: Claude by Anthropic's messages API with Amazon's framing, other models by Converse.

The credential is a Bedrock API key, sent as a bearer token, or IAM keys, which sign each request: those of the tenant,
or the operator's if the operator allows it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

import httpx2
from anthropic import AsyncAnthropicBedrock
from plangate.spec.vendors import VENDORS

from app.base.extras import MissingExtra, import_with_extra
from app.llm.anthropic import AnthropicProvider
from app.llm.anthropic_turn import AnthropicTurn
from app.llm.client import ModelClient
from app.llm.converse import BearerKey, ConverseProvider
from app.llm.eventstream import Frame, FrameReader, InvalidFrame
from app.llm.iam_keys import IamKeys
from app.llm.messages import ModelRequest, StreamPart
from app.llm.provider import ProviderNotBuilt, RequestRejected
from app.llm.sse import SseEvent, loads_event
from app.llm.wire import NO_KEY, validate_key

if TYPE_CHECKING:
    from app.llm.aws import RequestSigner

CLAUDE_VENDOR: Final = "anthropic"


def build(
    *,
    api_key: str | None,
    base_url: str | None,
    http_client: ModelClient | None,
    idle_timeout_s: float | None = None,
    region: str | None = None,
    credentials: str | None = None,
) -> BedrockProvider:
    """Build the provider for app.llm.registry.build_provider, which documents the arguments."""
    if base_url is None and not region:
        raise ProviderNotBuilt("A provider of kind 'bedrock' needs a region, such as us-east-1.")
    keys = None if api_key is None else IamKeys.from_key(api_key)
    signer = _signer(keys, region, of_operator=credentials == "operator")
    key = NO_KEY if signer is not None else validate_key(api_key, is_required=base_url is None)
    secrets = (key,) if keys is None else tuple(s for s in (keys.secret_key, keys.token) if s)
    address = base_url or f"https://{VENDORS['bedrock'].host_in(region)}"
    return BedrockProvider(http_client, idle_timeout_s, address, region or "", key, signer, secrets)


def _signer(keys: IamKeys | None, region: str | None, *, of_operator: bool) -> RequestSigner | None:
    """Return what signs requests with IAM keys, or None without them. Raise ProviderNotBuilt."""
    if keys is None and not of_operator:
        return None
    if not region:
        raise ProviderNotBuilt("IAM keys need a region, such as us-east-1: it is part of each signature.")
    try:
        aws = import_with_extra("app.llm.aws", "bedrock")
    except MissingExtra as error:
        raise ProviderNotBuilt(f"IAM keys are not available: {error}") from error
    source = aws.operator_credentials() if keys is None else aws.GivenKeys(keys)
    signer: RequestSigner = aws.RequestSigner(source, region)
    return signer


def uses_messages_api(model: str) -> bool:
    """Return whether a model is Claude, by its id or the ARN of its inference profile.

    Bedrock's ids begin with a vendor, perhaps after a region: `us.anthropic.claude-opus-4`. An id without one, as a
    server at a `baseUrl` may have, is taken for Claude. An ARN that does not show the vendor goes to Converse, which
    serves Claude, too.
    """
    name = model.rpartition("/")[2]
    vendor, dot, _ = name.rpartition(".")
    if not dot:
        return not model.startswith("arn:")
    return CLAUDE_VENDOR in name.split(".")[:-1] or vendor.endswith(CLAUDE_VENDOR)


class _SignedBedrock(AsyncAnthropicBedrock):
    """The SDK's client with signatures of ours. Its own would look for keys of the operator."""

    signer: RequestSigner | None = None

    @property
    def custom_auth(self) -> httpx2.Auth | None:
        return self.signer


class BedrockProvider(AnthropicProvider):
    """Models on Bedrock. Turns keep the requested name: one model has several prices, by the prefix of its
    id."""

    def __init__(
        self,
        http_client: ModelClient | None,
        idle_timeout_s: float | None,
        base_url: str,
        region: str,
        api_key: str,
        signer: RequestSigner | None,
        secrets: tuple[str, ...],
    ) -> None:
        address = {"api_key": api_key, "aws_region": region, "base_url": base_url}
        super().__init__(_SignedBedrock, http_client, idle_timeout_s, **address)
        self._secrets = secrets
        self._signer = self._client.signer = signer  # type: ignore[union-attr]
        auth = BearerKey(api_key) if signer is None else signer
        self._converse = ConverseProvider(self._http_client, base_url, auth, secrets, idle_timeout_s)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamPart, None]:
        if not request.model.partition(";")[0].strip("."):
            raise RequestRejected(
                f"The model id {request.model!r} cannot be part of a URL; use a Bedrock model id."
            )
        if self._signer is not None:
            await self._signer.load()  # the SDK would wrap what this may raise
        claude = uses_messages_api(request.model)
        parts = super().stream(request) if claude else self._converse.stream(request)
        async with aclosing(parts):
            async for part in parts:
                yield part

    def _turn(self, request: ModelRequest) -> AnthropicTurn:
        return AnthropicTurn(request.model, keep_requested_name=True)

    def _sse_events(self) -> Callable[[bytes], Iterator[SseEvent]]:
        frames = FrameReader(self._line_bytes)
        return lambda data: _events_from_frames(frames.feed(data))


def _events_from_frames(frames: Iterable[Frame]) -> Iterator[SseEvent]:
    for frame in frames:
        event = _event_from_frame(frame)
        if event is not None:
            yield event


def _event_from_frame(frame: Frame) -> SseEvent | None:
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


def _event_from_payload(payload: bytes) -> SseEvent:
    """Decode `{"bytes": <base64 of the event's JSON>}`. The reader of the event reports invalid JSON in
    it."""
    try:
        data = base64.b64decode(json.loads(payload)["bytes"], validate=True).decode()
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidFrame("it contains no bytes of an event") from error
    event = loads_event(data)
    kind = event.get("type") if isinstance(event, dict) else None
    return SseEvent(type="error" if kind == "error" else "message", data=data)


def _error_event(kind: str | None, message: str | None) -> SseEvent:
    error = {"type": kind, "message": message or "no message"}
    return SseEvent(type="error", data=json.dumps({"type": "error", "error": error}))


def _error_message(payload: bytes) -> str | None:
    try:
        body = json.loads(payload)
    except ValueError:
        return None
    message = body.get("message", body.get("Message")) if isinstance(body, dict) else None
    return message if isinstance(message, str) else None
