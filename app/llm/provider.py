"""The protocol that every vendor's adapter keeps, and the faults it may raise."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import ClassVar, Protocol

from app.llm.messages import ModelRequest, StreamPart, Usage


class ProviderFault(Exception):
    """A model turn did not come to its end. Nothing of a failed turn is ever acted on.

    `retryable`: the same request may work later. `retry_after_s`: the least time to wait, where the vendor
    said so. `usage`: what the failed attempt is known to have used.
    """

    code: ClassVar[str] = "provider_error"
    retryable: ClassVar[bool] = False

    def __init__(
        self, message: str, *, retry_after_s: float | None = None, usage: Usage | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_s = retry_after_s
        self.usage = usage or Usage()


class RateLimited(ProviderFault):
    code, retryable = "provider_rate_limited", True


class Overloaded(ProviderFault):
    """The vendor has no capacity (529, 503, or an error event in the middle of a stream)."""

    code, retryable = "provider_overloaded", True


class Unreachable(ProviderFault):
    """No connection, a time-out, or a connection that broke."""

    code, retryable = "provider_unreachable", True


class ServerFault(ProviderFault):
    """A 5xx of the vendor."""

    code, retryable = "provider_fault", True


class BrokenTurn(ProviderFault):
    """The stream ended without its end, a chunk was not what it should be, or tool JSON was unreadable
    together with a turn that is not complete."""

    code, retryable = "provider_broken_turn", True


class RequestRejected(ProviderFault):
    """The vendor refuses this request (400, 404, 413, 422): asking again gives the same."""

    code = "provider_rejected_request"


class NotAuthorized(ProviderFault):
    """401 or 403: the provider's key is wrong or may not do this."""

    code = "provider_not_authorized"


class ContextOverflow(ProviderFault):
    """The prompt is larger than the model's window."""

    code = "context_overflow"


class TooMuchSent(Exception):
    """A provider sent more than the service accepts. `bound` is the name of the bound, for the metric."""

    def __init__(self, bound: str, what: str, setting: str) -> None:
        super().__init__(f"The provider sent {what}, which the service does not read ({setting}).")
        self.bound = bound


class ProviderNotBuilt(Exception):
    """A provider cannot be built as it is configured. The message says what to change and repeats no key."""


class Provider(Protocol):
    """Streams one turn. Yields deltas, then exactly one TurnDone; anything else is a ProviderFault. Text that arrives
    together is merged into as few deltas as possible.

    An adapter makes one attempt: retries belong to the runner, which records them. Cancelling the iteration
    closes the connection.
    """

    def stream(self, request: ModelRequest) -> AsyncGenerator[StreamPart, None]: ...

    async def aclose(self) -> None: ...
