"""Every exception class of the SDKs is mapped; a class added by an update fails here."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType

import anthropic
import httpx2
import openai
import pytest

import app.llm.anthropic as anthropic_adapter
import app.llm.openai as openai_adapter
from app.llm.faults import STATUS_FAULTS, fault_from_sdk, retry_after_s
from app.llm.provider import (
    BrokenTurn,
    NotAuthorized,
    Overloaded,
    ProviderFault,
    RateLimited,
    RequestRejected,
    Unreachable,
)

REQUEST = httpx2.Request("POST", "https://api.example.com/v1/messages")


def subclasses(kind: type[Exception]) -> Iterator[type[Exception]]:
    for child in kind.__subclasses__():
        yield child
        yield from subclasses(child)


def load_all(package: ModuleType) -> None:
    """Import what a package imports lazily, so that no class hides; optional dependencies may be missing."""
    skipped = ("types", "resources", "cli", "__main__", "_vendor", "helpers")
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.", onerror=lambda _: None):
        if found.name.split(".")[1] in skipped or found.name.endswith("__main__"):
            continue
        try:
            importlib.import_module(found.name)
        except ImportError:
            continue


def mapped(kind: type[Exception], adapter: ModuleType) -> bool:
    return kind.__name__ in adapter.SDK_CLASS_FAULTS or getattr(kind, "status_code", None) in STATUS_FAULTS


def fault_of(error: Exception, adapter: ModuleType = anthropic_adapter) -> ProviderFault:
    return fault_from_sdk(error, adapter.SDK_CLASS_FAULTS)


@pytest.mark.parametrize(
    ("sdk", "root", "adapter", "least"),
    [
        (anthropic, anthropic.AnthropicError, anthropic_adapter, 100),
        (openai, openai.OpenAIError, openai_adapter, 20),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_every_exception_class_is_mapped(
    sdk: ModuleType, root: type[Exception], adapter: ModuleType, least: int
) -> None:
    load_all(sdk)
    kinds = {kind for kind in subclasses(root) if kind.__module__.startswith(sdk.__name__)}
    assert len(kinds) >= least
    missing = sorted(f"{k.__module__}.{k.__name__}" for k in kinds if not mapped(k, adapter))
    assert not missing, (
        f"map these in {adapter.__name__}.SDK_CLASS_FAULTS or in faults.STATUS_FAULTS: {missing}"
    )
    stale = sorted(set(adapter.SDK_CLASS_FAULTS) - {kind.__name__ for kind in kinds})
    assert not stale, f"the SDK has these no longer: {stale}"


def test_an_unmapped_exception_class_is_noticed() -> None:
    class BrandNewError(anthropic.AnthropicError): ...

    assert not mapped(BrandNewError, anthropic_adapter)


@pytest.mark.parametrize("status", sorted(STATUS_FAULTS))
def test_status_errors_of_both_sdks_are_mapped(status: int) -> None:
    response = httpx2.Response(status, request=REQUEST)
    expected = STATUS_FAULTS[status]
    theirs = anthropic.APIStatusError("no", response=response, body=None)
    assert type(fault_of(theirs)) is expected
    others = openai.APIStatusError("no", response=response, body=None)
    assert type(fault_of(others, openai_adapter)) is expected


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (anthropic.APITimeoutError(REQUEST), Unreachable),
        (anthropic.APIConnectionError(request=REQUEST), Unreachable),
        (anthropic.CredentialsError("none"), NotAuthorized),
        (anthropic.AnthropicError("anything"), Unreachable),
    ],
)
def test_errors_without_an_answer(error: anthropic.AnthropicError, fault: type[ProviderFault]) -> None:
    assert type(fault_of(error)) is fault


def test_an_overload_inside_a_stream_is_recognized_by_type() -> None:
    body = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    error = anthropic.APIStatusError("x", response=httpx2.Response(200, request=REQUEST), body=body)
    assert type(fault_of(error)) is Overloaded


@pytest.mark.parametrize(("sdk", "adapter"), [(anthropic, anthropic_adapter), (openai, openai_adapter)])
def test_a_response_that_is_not_a_stream_is_a_broken_turn(sdk: ModuleType, adapter: ModuleType) -> None:
    response = httpx2.Response(200, request=REQUEST)
    error = sdk.APIResponseValidationError(response, {"error": {"type": "invalid_request_error"}})
    assert type(fault_of(error, adapter)) is BrokenTurn


def test_a_spent_budget_is_not_waited_for() -> None:
    body = {"error": {"details": {"error_code": "enforced_spend_limit_reached"}, "message": "spent"}}
    response = httpx2.Response(429, request=REQUEST)
    fault = fault_of(anthropic.RateLimitError("x", response=response, body=body))
    assert type(fault) is RequestRejected
    plain = anthropic.RateLimitError("x", response=response, body={"error": {"type": "rate_limit_error"}})
    assert type(fault_of(plain)) is RateLimited


def test_an_invalid_header_is_rejected_without_its_value() -> None:
    error = anthropic.APIConnectionError(request=REQUEST)
    error.__cause__ = httpx2.LocalProtocolError("Illegal header value b'Bearer sk-secret'")
    fault = fault_of(error)
    assert type(fault) is RequestRejected
    assert "sk-secret" not in fault.message


def test_a_long_message_is_clipped() -> None:
    response = httpx2.Response(500, request=REQUEST)
    error = anthropic.InternalServerError("x" * 5000, response=response, body=None)
    assert len(fault_of(error).message) < 600


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("3", 3.0), ("inf", None), ("", None), ("Thu, 01 Jan 1970 00:00:00 -0000", 0.0), ("Mon, 99", None)],
)
def test_retry_after(value: str, seconds: float | None) -> None:
    assert retry_after_s({"retry-after": value}) == seconds
