"""The events of the demo for the eyes of a person: what its actions and glimpses say in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from examples.common.render import Screen, to_line
from examples.flight_recovery.system import COORDINATOR, EXECUTOR, PLANNER, REFERENCE


class FlightScreen(Screen):
    """The screen of an example, in the words of this one."""

    styles: ClassVar[Mapping[str, str]] = {COORDINATOR: "cyan", PLANNER: "magenta", EXECUTOR: "green"}
    values: ClassVar[str] = "the flights"

    def title(self, subject: Mapping[str, Any]) -> str:
        return f"{subject['specName']} of {to_line(subject['body']['day'])}, revision {subject['revision']}"

    def action_text(self, action: Mapping[str, Any]) -> str:
        payload = action["payload"]
        if action["kind"] == "issue_voucher":
            end = payload.get("below_minutes")
            late = (
                f"{payload['from_minutes']} to {end - 1} minutes late"
                if end
                else f"{payload['from_minutes']} minutes late or more"
            )
            return f"{to_line(payload['amount'])} {to_line(payload['currency'])} for each flight {late}"
        if action["kind"] == "notify_operations":
            return f"the desks of {', '.join(map(to_line, payload['carriers']))}, of each of their flights"
        return to_line(payload)

    def glimpse_text(self, reference: Mapping[str, Any]) -> str:
        """Return the glimpse in words where its kind is known, else its JSON."""
        if reference["kind"] != REFERENCE:
            return super().glimpse_text(reference)
        glimpse = reference["glimpse"]
        worst = glimpse["worst"]
        carriers = ", ".join(f"{c['name']} ({c['carrier']}) {c['flights']}" for c in glimpse["by_carrier"])
        return (
            f"{glimpse['flights']} of {glimpse['scheduled']} scheduled departures left "
            f"{glimpse['limit_minutes']} minutes late or more, {glimpse['at_least_240_minutes']} of them at "
            f"least 240 ({glimpse['cancelled']} never left); worst {worst['flight']} {worst['route']}, "
            f"{worst['minutes_late']} minutes; most: {carriers}"
        )
