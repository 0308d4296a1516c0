"""The system of agents as data: prompts, tool, plan, reference, write boundary.

`define(...)` gives all of it; with a model or without one it is the same system.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal

from plangate import (
    ActionDispatcher,
    DefinedRuntime,
    DefinedTool,
    LayeredPrompt,
    TaggedUnion,
    define_coordinator,
    define_executor,
    define_plan,
    define_planner,
    define_reference,
    define_runtime,
    define_tenant,
    define_tool,
    layered_prompt,
)
from pydantic import BaseModel, ConfigDict, Field

from examples.flight_recovery.data import (
    SEVERE_MINUTES,
    YEAR,
    DelayedFlights,
    Flight,
    find_delayed,
    glimpse_of,
)
from examples.flight_recovery.ledger import Ledger, Written

PLAN = "FlightRecovery"
REFERENCE = "DelayedFlights"
FIND_TOOL = "find_delayed_departures"
COORDINATOR, PLANNER, EXECUTOR = "coordinator", "planner", "executor"

CURRENCY = "USD"
STANDARD_AMOUNT, SEVERE_AMOUNT = "75.00", "200.00"
REASON = "Departed {} minutes late or more"
MESSAGE = "Late departures of your flights: passengers have vouchers, plan crews and gates accordingly."

Amount = Annotated[str, Field(pattern=r"^[0-9]{1,4}\.[0-9]{2}$", description='A decimal, such as "75.00".')]
Carrier = Annotated[str, Field(pattern=r"^[0-9A-Z]{2}$", description="The carrier's code of two characters.")]


# The plan.


class Action(BaseModel):
    model_config = ConfigDict(extra="forbid")


class IssueVoucher(Action):
    """A voucher for each of the referenced flights that was late by these minutes."""

    kind: Literal["issue_voucher"]
    amount: Amount
    currency: Literal["USD"]
    from_minutes: Annotated[int, Field(ge=0, description="Flights at least this late.")]
    below_minutes: Annotated[int | None, Field(description="And less than this; null: no end.")] = None
    reason: str


class NotifyOperations(Action):
    """A notification for each of the referenced flights of these carriers."""

    kind: Literal["notify_operations"]
    carriers: Annotated[list[Carrier], Field(min_length=1)]
    message: str


class FlightRecovery(BaseModel):
    """A plan for a day of late departures."""

    day: date
    summary: str
    actions: Annotated[list[TaggedUnion(IssueVoucher, NotifyOperations)], Field(min_length=1)]  # type: ignore[valid-type]


# The reference and the tool.

DELAYED_FLIGHTS = define_reference(REFERENCE, DelayedFlights, glimpse=glimpse_of)


class Search(BaseModel):
    """The arguments of `find_delayed_departures`."""

    day: Annotated[date, Field(description=f"A day of {YEAR}.")]
    limit_minutes: Annotated[int, Field(ge=1, le=1440, description="How late is late.")] = 120


@define_tool(
    FIND_TOOL,
    Search,
    "Finds the departures from New York of one day that were late by a limit or more. Returns the handle of a "
    f"reference of kind {REFERENCE} with a glimpse of it: how many, the worst, the carriers with most. The flights "
    "themselves stay outside: pass the handle on.",
    annotations={"read_only": True, "idempotent": True},
)
async def find_delayed_departures(args: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
    """Store the rows as a reference, and give the agent its handle and glimpse."""
    search = Search.model_validate(dict(args))
    ctx.progress(f"looking through the flights of {YEAR}")
    delayed = await asyncio.to_thread(find_delayed, search.day, search.limit_minutes)
    if not delayed.flights:
        raise ValueError(
            f"None of the {delayed.scheduled} departures of {search.day} was {search.limit_minutes} minutes late "
            "or more: there is nothing to plan."
        )
    made: dict[str, Any] = await ctx.references.create(DELAYED_FLIGHTS, delayed)
    return made


# The write boundary: no model can call it, and it sees nothing but approved actions.


def dispatchers(ledger: Ledger) -> dict[str, ActionDispatcher]:
    """Return one dispatcher per kind of action. The ledger writes each key once, so both may be repeated safely."""

    def issue(action: Mapping[str, Any], delayed: DelayedFlights) -> Written:
        payload = action["payload"]
        start, end = payload["from_minutes"], payload.get("below_minutes")
        chosen = [
            f for f in delayed.flights if start <= f.minutes_late and (end is None or f.minutes_late < end)
        ]
        return ledger.issue_vouchers(
            action["idempotencyKey"],
            delayed.day.isoformat(),
            chosen,
            Decimal(payload["amount"]),
            payload["currency"],
            payload["reason"],
        )

    def notify(action: Mapping[str, Any], delayed: DelayedFlights) -> Written:
        payload = action["payload"]
        chosen = [flight for flight in delayed.flights if flight.carrier in payload["carriers"]]
        return ledger.notify(action["idempotencyKey"], delayed.day.isoformat(), chosen, payload["message"])

    return {
        "issue_voucher": ActionDispatcher(_create_handler(issue, "vouchers"), replay="safe"),
        "notify_operations": ActionDispatcher(_create_handler(notify, "notifications"), replay="safe"),
    }


def _create_handler(
    write: Callable[[Mapping[str, Any], DelayedFlights], Written], what: str
) -> Callable[[Any, Any], Any]:
    """Return a dispatcher's handler: each action with the flights behind its references, hydrated by the service."""

    async def carry_out(actions: Sequence[Mapping[str, Any]], ctx: Any) -> dict[str, Any]:
        rows = 0
        for action in actions:
            delayed = _flights(action, ctx["resolved_refs"])
            written = await asyncio.to_thread(write, action, delayed)
            rows += written.rows
        return {"entitiesAffected": rows, "summary": f"{rows} {what} written."}

    return carry_out


def _flights(action: Mapping[str, Any], resolved: Mapping[str, Mapping[str, Any]]) -> DelayedFlights:
    """Return the flights of the action's references, each once."""
    found = [
        DelayedFlights.model_validate(resolved[ref["kind"]][ref["id"]])
        for ref in action["references"]
        if ref["kind"] == REFERENCE
    ]
    if not found:
        raise ValueError(
            f"The action {action['kind']} names no {REFERENCE}, so it says nothing about any flight."
        )
    flights: dict[str, Flight] = {flight.key: flight for delayed in found for flight in delayed.flights}
    return found[0].model_copy(update={"flights": list(flights.values())})


# The agents.


def _coordinator_prompt() -> LayeredPrompt:
    return layered_prompt(
        identity="You coordinate the recovery of an airport's operations after a day of late departures.",
        communication="Short and factual. Plain text, no Markdown.",
        operational_rules=[
            f"First call {PLANNER}: give it the day, the limit in minutes, and a planId of your choice.",
            f"Then call {EXECUTOR} with that planId. It asks a person and carries out what was approved.",
            f"If a revision is asked for, call {PLANNER} with the feedback and the same planId, then {EXECUTOR} "
            "again. If the plan is rejected, stop and say so.",
            "At the end say in one or two sentences what was done: how many flights, vouchers, notifications.",
        ],
    )


def _planner_prompt(limit_minutes: int) -> LayeredPrompt:
    return layered_prompt(
        identity="You plan what passengers and carriers get after a day of late departures.",
        communication="Short and factual. Plain text, no Markdown.",
        operational_rules=[
            f"Call {FIND_TOOL} once. It returns a handle {{kind, id}} with a glimpse; work with the glimpse.",
            "Then call storePlan once, with the planId you were given: one issue_voucher for each band of the "
            "policy that the glimpse shows flights in, and one notify_operations for the carriers in the glimpse.",
            f"Give every action `references` with the handle of the {REFERENCE}: that is how it reaches the flights.",
            "You never see single flights and never need them.",
            "Where you are given feedback on a plan, follow it and store the plan again under the same planId.",
            "Answer with the planId and one sentence about the plan.",
        ],
        domain_knowledge={
            "voucher_policy": [
                {"from_minutes": start, "below_minutes": end, "amount": amount, "currency": CURRENCY}
                for start, end, amount in bands(limit_minutes)
            ]
        },
    )


def _executor_prompt() -> LayeredPrompt:
    return layered_prompt(
        identity="You have stored plans carried out.",
        communication="Short and factual. Plain text, no Markdown.",
        operational_rules=[
            "Call executePlan with the planId that you were given, once. A person decides in between.",
            "Report the outcome: carried out with its numbers, rejected, or to be revised, with the feedback word "
            "for word. Never try again by yourself.",
        ],
    )


def bands(limit_minutes: int, standard: str = STANDARD_AMOUNT) -> list[tuple[int, int | None, str]]:
    """Return the voucher policy: (from minutes, below minutes, amount)."""
    if limit_minutes >= SEVERE_MINUTES:
        return [(limit_minutes, None, SEVERE_AMOUNT)]
    return [(limit_minutes, SEVERE_MINUTES, standard), (SEVERE_MINUTES, None, SEVERE_AMOUNT)]


def define(ledger: Ledger, *, tenant: str, model: str, limit_minutes: int, scripted: bool) -> DefinedRuntime:
    """Return the whole system. `scripted`: its agents follow scripts and no model is asked."""
    asked = {"id": model, "provider": "anthropic"}
    plan = define_plan(
        PLAN,
        FlightRecovery,
        display_aliases={"draft": "proposed", "executing": "being carried out", "executed": "carried out"},
        glimpse={
            "flights": {
                "expression": "max(actions[].references[].glimpse.flights)",
                "label": "Late flights",
                "kind": "integer",
            },
            "dearest": {
                "expression": "max_by(actions[?kind=='issue_voucher'].payload, &to_number(amount)).amount",
                "label": "Highest voucher",
                "unit": CURRENCY,
                "kind": "decimal",
            },
            "carriers": {
                "expression": "length(actions[?kind=='notify_operations'].payload.carriers[])",
                "label": "Carriers that are notified",
                "kind": "integer",
            },
        },
    )
    tool: DefinedTool = find_delayed_departures
    planner = define_planner(
        PLANNER, asked, _planner_prompt(limit_minutes), plan, tools=[tool], references=[DELAYED_FLIGHTS]
    )
    executor = define_executor(
        EXECUTOR,
        asked,
        _executor_prompt(),
        plan,
        approval={"plans": "always"},
        toolkits=[{"id": "references", "config": {"tools": []}}],  # nothing that could read the flights
    )
    coordinator = define_coordinator(COORDINATOR, asked, _coordinator_prompt(), routes=[planner, executor])
    return define_runtime(
        define_tenant(tenant),
        [coordinator, planner, executor],
        name="flight-recovery",
        action_dispatchers=dispatchers(ledger),
        interpreter="scripted" if scripted else None,
    )
