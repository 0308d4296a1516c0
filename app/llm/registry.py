"""From the kind of a provider to the adapter that speaks it.

Each vendor's adapter has `build(*, api_key, base_url, http_client, ...) -> Provider` with the options of its record.
The adapters import SDKs, which takes seconds, so each is imported when the first provider of its kind is built.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from plangate.spec.vendors import MODEL_FREE_FIELDS, PROVIDER_FIELDS, VENDORS

from app.base.extras import MissingExtra, import_with_extra
from app.llm.mock import MockProvider
from app.llm.noop import NoopProvider
from app.llm.prices import preload
from app.llm.provider import Provider, ProviderNotBuilt
from app.llm.scripted import ScriptedProvider

if TYPE_CHECKING:
    from app.llm.client import ModelClient


def build_provider(
    kind: str,
    *,
    api_key: str | None = None,
    base_url: str | None = None,
    http_client: ModelClient | None = None,
    options: Mapping[str, Any] | None = None,
) -> Provider:
    """Build the adapter for one provider of a runtime.

    `http_client` stays the caller's: closing the provider does not close it. It must be given wherever a
    tenant chose `base_url` (see app.base.egress); without one the provider opens a client of its own, which
    knows no proxy of the environment. No adapter takes keys, addresses or headers from environment
    variables, except `bedrock` with `credentials`.

    `options`: for `mock` its `text` and `tokens` (see MockProvider); for the vendors `idleTimeoutS`, the
    longest silence of a stream in seconds (120); for `bedrock` its `region`, and `credentials`, which must be
    left out unless the operator lets this tenant spend its identity; for `vertex` `region` and `project`.

    Raises ProviderNotBuilt for an unknown kind, an unusable key or address, an unknown option, or a vendor whose
    package is not installed. The first
    call for a vendor imports its SDK, a second of work: make it in a thread where an event loop must not
    wait.
    """
    options = dict(options or {})
    if kind == "mock":
        return _mock(options)
    if kind in MODEL_FREE_FIELDS:
        _refuse_unknown(kind, options)
        return NoopProvider() if kind == "noop" else ScriptedProvider()
    vendor = VENDORS.get(kind)
    if vendor is None:
        raise ProviderNotBuilt(
            f"There is no provider of kind {kind!r}: use one of {', '.join(sorted(PROVIDER_FIELDS))}."
        )
    _refuse_unknown(kind, options.keys() - vendor.options.keys())
    if base_url is not None and not base_url.startswith(("https://", "http://")):
        raise ProviderNotBuilt("The provider's baseUrl must begin with https:// or http://.")
    try:
        module = import_with_extra(f"app.llm.{kind}", kind)
    except MissingExtra as error:
        raise ProviderNotBuilt(f"Providers of kind {kind!r} are not available: {error}") from error
    preload(kind)
    provider: Provider = module.build(
        api_key=api_key,
        base_url=base_url,
        http_client=http_client,
        **{vendor.options[option]: value for option, value in options.items()},
    )
    return provider


def operator_address(kind: str, region: str | None) -> tuple[str | None, str | None]:
    """Return the address at which the operator's keys of a vendor are used, or None for the vendor's own, and its host."""
    vendor = VENDORS[kind]
    base_url = os.environ.get(vendor.url_env) if vendor.url_env else None
    return base_url, urlsplit(base_url).hostname if base_url else vendor.host_in(region)


def load_vendor(kind: str) -> None:
    """Import the adapter of a vendor with its SDK, and its prices, which takes about a second of CPU. Do nothing if its
    package is not installed."""
    with suppress(MissingExtra):
        import_with_extra(f"app.llm.{kind}", kind)
    preload(kind)


def _mock(options: dict[str, Any]) -> MockProvider:
    text, tokens = options.pop("text", None), options.pop("tokens", None)
    _refuse_unknown("mock", options)
    return MockProvider(tokens=tokens) if text is None else MockProvider(text, tokens=tokens)


def _refuse_unknown(kind: str, left: Collection[str]) -> None:
    if left:
        raise ProviderNotBuilt(f"A provider of kind {kind!r} knows no option {sorted(left)[0]!r}.")
