"""References from Python: validated, summarized once by the author's function, and sent as JSON."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import plangate
import pytest
from plangate import define_reference, define_runtime, define_specialist, define_tool
from pydantic import BaseModel, ValidationError

from tests.pure.sdk.fake_service import FakeService, fake_service


class Basket(BaseModel):
    items: list[str]
    total: Decimal = Decimal("0.10")


class Rows(BaseModel):
    rows: list[Any]


CREATE = ("POST", "/references")


def spec(*references: Any, **options: Any) -> plangate.DefinedRuntime:
    helper = define_specialist("helper", "m-1", "You help.", references=list(references), **options)
    return define_runtime("acme", [helper])


def stored(service: FakeService) -> None:
    """The service gives the handle of whatever is sent."""
    service.answers[CREATE] = lambda body: (
        201,
        {"kind": body["kind"], "id": "r1", "glimpse": body.get("glimpse", {"count": 0}), "sizeBytes": 9},
    )


async def test_the_glimpse_function_is_called_once_with_the_validated_value() -> None:
    seen: list[Any] = []

    def summary(basket: Basket) -> dict[str, Any]:
        seen.append(basket)
        return {"total": basket.total, "n": len(basket.items)}

    Baskets = define_reference("Basket", Basket, ttl_ms=60_000, glimpse=summary)
    async with fake_service() as service:
        stored(service)
        async with service.runtime(spec(Baskets)) as runtime:
            (registered,) = service.bodies("POST", "/runtimes")
            assert set(registered["references"][0]) == {"name", "schema", "ttlMs"}
            made = await runtime.create_reference(Baskets, {"items": ["tea"]})
            assert made == {"kind": "Basket", "id": "r1", "glimpse": {"total": "0.10", "n": 1}}
            assert service.bodies(*CREATE) == [
                {
                    "runtimeId": "rt_1",
                    "kind": "Basket",
                    "value": {"items": ["tea"], "total": "0.10"},
                    "glimpse": {"total": "0.10", "n": 1},
                }
            ]
            assert seen == [Basket(items=["tea"])]
            await runtime.create_reference("Basket", Basket(items=[]))
            assert len(seen) == 2


async def test_a_declared_glimpse_is_the_services() -> None:
    Baskets = define_reference("Basket", {"items": list[str]}, glimpse={"n": "length(items)"})
    async with fake_service() as service:
        stored(service)
        async with service.runtime(spec(Baskets)) as runtime:
            made = await runtime.create_reference(Baskets, {"items": ["tea"]})
            assert made["glimpse"] == {"count": 0}
            await runtime.create_reference("Unknown", [Decimal("1.50")])
            assert [set(body) for body in service.bodies(*CREATE)] == [{"runtimeId", "kind", "value"}] * 2
            assert service.bodies(*CREATE)[1]["value"] == ["1.50"]


async def test_an_invalid_value_is_not_sent() -> None:
    Baskets = define_reference("Basket", {"items": list[str]})
    async with fake_service() as service, service.runtime(spec(Baskets)) as runtime:
        told = r'^the value is not a Basket: 1 is not of type "string" \(at /items/0\)$'
        for kind in (Baskets, "Basket"):
            with pytest.raises(ValueError, match=told):
                await runtime.create_reference(kind, {"items": [1]})
        assert service.bodies(*CREATE) == []


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
async def test_nan_is_rejected_and_does_not_become_null(number: float) -> None:
    kinds = [
        define_reference("Basket", {"rows": list[dict[str, Any]]}),
        define_reference("Basket", {"type": "object"}),
        define_reference("Basket", dict),
        define_reference("Basket", dict[str, list[dict[str, float]]]),
        define_reference("Basket", Rows),
    ]
    async with fake_service() as service, service.runtime(spec(kinds[0])) as runtime:
        for kind in kinds:
            with pytest.raises(
                ValueError, match=r"^the value is not a Basket: it cannot be written as JSON: Out of"
            ):
                await runtime.create_reference(kind, {"rows": [{"cents": number}]})
        with pytest.raises(
            ValueError, match=r"^the value is not a Basket: it cannot be written as JSON: Out of"
        ):
            await runtime.create_reference(kinds[1], {"rows": {number}})
        assert service.bodies(*CREATE) == []


async def test_reading() -> None:
    async with fake_service() as service, service.runtime(spec()) as runtime:
        service.answers[("GET", "/references/Basket/r1")] = lambda body: (200, {"items": []})
        service.answers[("GET", "/references/Basket/r1/glimpse")] = lambda body: (200, {"glimpse": {"n": 0}})
        service.answers[("GET", "/references/Basket/r2")] = lambda body: (
            410,
            {"type": "reference_expired", "detail": "It has expired."},
        )
        assert await runtime.resolve_reference("Basket", "r1") == {"items": []}
        assert await runtime.reference_glimpse("Basket", "r1") == {"n": 0}
        with pytest.raises(plangate.Gone, match="reference_expired"):
            await runtime.resolve_reference("Basket", "r2")
        with pytest.raises(plangate.NotFound):
            await runtime.resolve_reference("Basket", "r3")


@pytest.mark.parametrize("sync", [True, False], ids=["sync", "async"])
async def test_a_handler_creates_under_its_call(sync: bool) -> None:
    Baskets = define_reference("Basket", {"items": list[str]})

    def blocking(args: Any, ctx: Any) -> Any:
        made = ctx.references.create(Baskets, {"items": ["tea"]})
        return [made, ctx.references.resolve("Basket", "r1"), ctx.references.glimpse("Basket", "r1")]

    async def awaited(args: Any, ctx: Any) -> Any:
        made = await ctx.references.create(Baskets, {"items": ["tea"]})
        value = await ctx.references.resolve("Basket", "r1")
        return [made, value, await ctx.references.glimpse("Basket", "r1")]

    tool = define_tool("keep", {}, handler=blocking if sync else awaited)
    async with fake_service() as service:
        stored(service)
        service.answers[("GET", "/references/Basket/r1")] = lambda body: (200, {"items": ["tea"]})
        service.answers[("GET", "/references/Basket/r1/glimpse")] = lambda body: (200, {"glimpse": {"n": 1}})
        async with service.runtime(spec(Baskets, tools=[tool])):
            (served,) = service.bodies("POST", "/tool-calls/claim")[0]["tools"]
            handle = {"kind": "Basket", "id": "r1", "glimpse": {"count": 0}}
            posted = await service.outcome({**served, "args": {}})
            assert posted == {"output": [handle, {"items": ["tea"]}, {"n": 1}]}
            assert [body["workId"] for body in service.bodies(*CREATE)] == ["wrk_0"]
            read = [
                (where, said) for (_, where, _, _), said in zip(service.asked, service.searched, strict=True)
            ]
            assert ("/references/Basket/r1", {"workId": "wrk_0"}) in read


def test_a_kind_is_frozen() -> None:
    Baskets = define_reference("Basket", Basket)
    with pytest.raises(ValidationError, match="frozen"):
        Baskets.ttl_ms = 5
