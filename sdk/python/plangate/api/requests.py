"""What every generated call has in common."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypedDict, TypeVar

from plangate.api.record import convert
from plangate.client import PAGE, READ_TIMEOUT_S, REQUEST_PATIENCE_S, ServiceClient

Item = TypeVar("Item", covariant=True)
UNSET: Final[Any] = object()
"""The default of a field that takes any JSON: null is a value of it."""

Content = bytes | Callable[[], AsyncIterator[bytes]]
"""A body that is not JSON, or a function that gives it in pieces, once for each attempt to send it."""


class RequestOptions(TypedDict, total=False):
    """How a call is sent; see `ServiceClient.request`.

    Args:
        idempotency_key: Instead of a new one.
        once: The service does not keep the response for repetitions: no key is sent.
        patience_s: How long it is sent again while the service does not answer; 0 is never.
        timeout_s: How long one response may take.
    """

    idempotency_key: str | None
    once: bool
    patience_s: float
    timeout_s: float


class Page(Protocol[Item]):
    """A page of a list."""

    @property
    def items_(self) -> Sequence[Item]: ...

    @property
    def next_cursor(self) -> str | None: ...


class Requests:
    """Sends the generated calls with a client."""

    def __init__(self, client: ServiceClient, next_key: Callable[[str, Any], str] | None = None) -> None:
        """Set `next_key` to what returns the Idempotency-Key for a path and a content; by default keys are random."""
        self._client = client
        self._next_key = next_key

    async def _call(
        self,
        kind: Any,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        data: Content | None = None,
        media_type: str | None = None,
        params: Mapping[str, Any] | None = None,
        accept: str = "application/json",
        raw: bool = False,
        keyed: bool = False,
        idempotency_key: str | None = None,
        once: bool = False,
        patience_s: float = REQUEST_PATIENCE_S,
        timeout_s: float = READ_TIMEOUT_S,
    ) -> Any:
        """Send a request, and return the response as `kind`, with records where that has them.

        Args:
            keyed: It takes an Idempotency-Key, as every POST does.
        """
        query = None if params is None else present(params)
        if idempotency_key is None and not once and (keyed or method == "POST"):
            idempotency_key = self._new_key(path, body, query, data, media_type)
        value = await self._client.request(
            method,
            path,
            body,
            params=query,
            data=data,
            media_type=media_type,
            accept=accept,
            raw=raw,
            once=once,
            key=idempotency_key,
            patience_s=patience_s,
            timeout_s=timeout_s,
        )
        return convert(kind, value)

    def _new_key(
        self, path: str, body: Any, params: Any, data: Content | None, media_type: str | None
    ) -> str:
        if self._next_key is None:
            return uuid.uuid4().hex
        digest = hashlib.sha256(data).hexdigest() if isinstance(data, bytes) else None
        return self._next_key(path, [body, params, digest, media_type])


async def read_items(
    read_page: Callable[..., Awaitable[Page[Item]]], *arguments: Any, limit: int, **filters: Any
) -> list[Item]:
    """Return the first items of a list, over as many pages as needed.

    Args:
        read_page: A generated call that returns a page.
        arguments, filters: What the call takes, but for `limit` and `cursor`.
        limit: How many items at most.
    """
    items: list[Item] = []
    cursor = None
    while len(items) < limit:
        page = await read_page(*arguments, **filters, limit=min(limit - len(items), PAGE), cursor=cursor)
        items += page.items_
        cursor = page.next_cursor
        if cursor is None:
            break
    return items


def present(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are not None: null is unset, for every optional field of a request that does not take any
    JSON."""
    return {name: value for name, value in fields.items() if value is not None}


def present_json(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are set, of those that take any JSON."""
    return {name: value for name, value in fields.items() if value is not UNSET}
