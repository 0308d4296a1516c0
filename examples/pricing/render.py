"""The events of the example for the eyes of a person: what its actions, glimpses and answers say in words."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any, ClassVar

from rich.console import Console

from examples.common.render import Event, Screen, to_line, usage_text
from examples.pricing.system import COORDINATOR, COPYWRITER, EXECUTOR, PLANNER, REFERENCE


class PricingScreen(Screen):
    """The screen of an example, in the words of this one. It also counts what each agent used."""

    styles: ClassVar[Mapping[str, str]] = {
        COORDINATOR: "cyan",
        PLANNER: "magenta",
        COPYWRITER: "blue",
        EXECUTOR: "green",
    }
    values: ClassVar[str] = "the products"

    def __init__(self, console: Console, *, scripted: bool) -> None:
        super().__init__(console, scripted=scripted)
        self._turns: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        self._shows["work-end"] = self._count

    def title(self, subject: Mapping[str, Any]) -> str:
        context = subject["body"]["context"]
        return (
            f"{subject['specName']} until {to_line(context['ends'])}, {euros(context['budget_cents'])} reserved, "
            f"revision {subject['revision']}"
        )

    def action_text(self, action: Mapping[str, Any]) -> str:
        payload = action["payload"]
        if action["kind"] == "price_change":
            return f"list prices {payload['percent']:+} %"
        return f"{payload['percent']} % off with the code {to_line(payload['code'])}: “{to_line(payload['headline'])}”"

    def glimpse_text(self, reference: Mapping[str, Any]) -> str:
        if reference["kind"] != REFERENCE:
            return super().glimpse_text(reference)
        glimpse = reference["glimpse"]
        return (
            f"{glimpse['products']} products of {glimpse['season']}, "
            f"{glimpse['in_stock']:,} pieces in stock, "
            f"{euros(glimpse['cheapest_cents'])} to {euros(glimpse['dearest_cents'])}"
        )

    def result_text(self, event: Event) -> str | None:
        result = event["result"]
        if "budget_cents" in result:
            return f"{euros(result['budget_cents'])} reserved"
        return f"“{result['headline']}”" if "headline" in result else None

    def _count(self, event: Event) -> None:
        if event["data"]["kind"] == "model_call":
            self._turns[event["agent"]].append(event["data"])

    def costs(self) -> None:
        """Print what each agent used, over all queries."""
        for agent, turns in self._turns.items():
            usage: Counter[str] = Counter()
            for turn in turns:
                usage.update(turn.get("usage") or {})
            known = [turn["costUsd"] for turn in turns if turn.get("costUsd") is not None]
            spent = usage_text({"usage": usage, "costUsd": sum(known) if known else None})
            times = f"{len(turns)} turn{'s' if len(turns) > 1 else ''}"
            self.line("cost", f"{agent}: {times}, {spent if usage.total() else 'no tokens'}")


def euros(cents: int) -> str:
    return f"{cents / 100:,.2f} EUR"
