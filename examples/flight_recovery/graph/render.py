"""The events of the graph form for the eyes of a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from examples.common.render import Screen, to_line
from examples.flight_recovery.data import SEVERE_MINUTES
from examples.flight_recovery.system import COORDINATOR, EXECUTOR, PLANNER


class GraphScreen(Screen):
    """The screen of an example, in the words of this one. A variable is shown as it is written: it is what is approved,
    and what it stands for is shown below the plan."""

    styles: ClassVar[Mapping[str, str]] = {COORDINATOR: "cyan", PLANNER: "magenta", EXECUTOR: "green"}

    def action_text(self, action: Mapping[str, Any]) -> str:
        told = {name: to_line(value) for name, value in action["payload"].items()}
        match action["kind"]:
            case "find_delays":
                return f"departures of {told['day']}, {told['limit_minutes']} minutes late or more"
            case "split":
                carriers = action["payload"]["carriers"]
                return f"{told['flights']} by carrier: {', '.join(map(to_line, carriers))}, the rest as other"
            case "price":
                return (
                    f"{told['group']}: {told['amount']} {told['currency']} for each of {told['flights']}, "
                    f"{told['severe_amount']} from {SEVERE_MINUTES} minutes on"
                )
            case "summarise":
                return f"{told['totals']} of {', '.join(map(to_line, action['payload']['groups']))}"
        return to_line(action["payload"])
