"""The system of agents whose plan is a graph of tool calls: the tools, who plans and who executes.

The planner writes paths (`†state.groups.EV`), never values. The service puts the values in when it calls a tool, and
writes the result to the action's path; an action that reads a path runs after those that write it. The tools are all
that the plan is made of: no action and no dispatcher is declared beside them.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal, TypeVar

from plangate import (
    DefinedRuntime,
    DefinedTool,
    LayeredPrompt,
    define_coordinator,
    define_executor,
    define_plan,
    define_planner,
    define_runtime,
    define_tenant,
    define_tool,
    layered_prompt,
)
from pydantic import BaseModel, ConfigDict, Field

from examples.flight_recovery.data import SEVERE_MINUTES, YEAR, DelayedFlights, Flight, find_delayed
from examples.flight_recovery.ledger import Ledger
from examples.flight_recovery.system import (
    COORDINATOR,
    CURRENCY,
    EXECUTOR,
    PLANNER,
    REASON,
    SEVERE_AMOUNT,
    STANDARD_AMOUNT,
    Amount,
    Carrier,
)

PLAN = "FlightRecoveryGraph"
NAME = "flight-recovery-graph"
CARRIERS = ("AA", "B6", "DL", "EV", "UA")
"""Those with most departures from New York: each is a group by itself."""

OTHER = "other"
LATE, SEVERE = "Departed late", REASON.format(SEVERE_MINUTES)

Day = Annotated[date, Field(description=f"A day of {YEAR}.")]
Limit = Annotated[int, Field(ge=1, le=1440, description="How late is late, in minutes.")]
Group = Annotated[str, Field(pattern=rf"^([0-9A-Z]{{2}}|{OTHER})$", description=f"A carrier, or `{OTHER}`.")]


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Inputs(Closed):
    """The inputs of a query or an execution of the plan."""

    day: Day
    limit_minutes: Limit


# The arguments of the tools.


class FindDelays(Closed):
    """Finds the departures of a day that were late by a limit or more. Its result has them as `flights`."""

    day: Day
    limit_minutes: Limit


class Split(Closed):
    """Splits flights by carrier. Its result has an array of flights for each of these carriers, which may be
    empty, and the flights of all others as `other`."""

    flights: list[Flight]
    carriers: Annotated[list[Carrier], Field(min_length=1)]


class Price(Closed):
    """A voucher for each flight of a group. Its result is the total of the group, under its name: merge it with
    those of the other groups."""

    group: Group
    day: Day
    flights: list[Flight]
    amount: Amount
    severe_amount: Annotated[Amount, Field(description=f"From {SEVERE_MINUTES} minutes on.")]
    currency: Literal["USD"]


class Total(Closed):
    """The total of a group's vouchers."""

    vouchers: Annotated[int, Field(ge=0)]
    amount: Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]{2}$")]


class Summarise(Closed):
    """Adds up the totals of these groups."""

    day: Day
    groups: Annotated[list[Group], Field(min_length=1)]
    totals: dict[str, Total]


# What the tools do. They report as a dispatcher does: `details` goes to the path of the action.

Arguments = TypeVar("Arguments", bound=Closed)
Done = dict[str, Any]


def find_delays(action: FindDelays, key: str) -> Done:
    found = find_delayed(action.day, action.limit_minutes)
    late = f"{action.limit_minutes} minutes late or more"
    return _done(
        f"{len(found.flights)} of {found.scheduled} departures on {action.day} were {late}.",
        DelayedFlights.model_dump(found, mode="json"),
    )


def split(action: Split, key: str) -> Done:
    groups: dict[str, list[Flight]] = {group: [] for group in (*action.carriers, OTHER)}
    for flight in action.flights:
        groups[flight.carrier if flight.carrier in action.carriers else OTHER].append(flight)
    return _done(
        f"Split into {', '.join(f'{group} {len(flights)}' for group, flights in groups.items())}.",
        {group: [flight.model_dump() for flight in flights] for group, flights in groups.items()},
    )


def summarise(action: Summarise, key: str) -> Done:
    totals = {group: action.totals[group] for group in action.groups}
    vouchers = sum(total.vouchers for total in totals.values())
    amount = sum((Decimal(total.amount) for total in totals.values()), Decimal(0))
    return _done(
        f"{vouchers} vouchers for {action.day}: {amount:,} {CURRENCY}.",
        {
            "day": action.day.isoformat(),
            "vouchers": vouchers,
            "amount": str(amount),
            "currency": CURRENCY,
            "by_group": {group: total.amount for group, total in totals.items()},
        },
    )


def pricing(ledger: Ledger) -> Callable[[Price, str], Done]:
    """Return the function that writes the vouchers: a row for each flight, once, however often the action is sent."""

    def price(action: Price, key: str) -> Done:
        amount, bands = Decimal(0), {LATE: Decimal(action.amount), SEVERE: Decimal(action.severe_amount)}
        for reason, worth in bands.items():
            flights = [f for f in action.flights if (f.minutes_late >= SEVERE_MINUTES) == (reason == SEVERE)]
            ledger.issue_vouchers(key, action.day.isoformat(), flights, worth, action.currency, reason)
            amount += worth * len(flights)
        total = Total(vouchers=len(action.flights), amount=f"{amount:.2f}")
        return _done(
            f"{total.vouchers} vouchers for {action.group}: {amount:,.2f} {action.currency}.",
            {action.group: total.model_dump()},
            entities=total.vouchers,
        )

    return price


def _done(summary: str, value: Any, entities: int = 0) -> Done:
    """Return the report of an action. The summary is read by agents: it has numbers and no rows."""
    return {"entitiesAffected": entities, "summary": summary, "details": value}


def tools(ledger: Ledger) -> dict[str, DefinedTool]:
    """Return the tools by name. Three of them only compute and the ledger writes a key once, so that all may safely be
    repeated."""
    made = (
        _tool("find_delays", FindDelays, find_delays),
        _tool("split", Split, split),
        _tool("price", Price, pricing(ledger)),
        _tool("summarise", Summarise, summarise),
    )
    return {tool.name: tool for tool in made}


def _tool(name: str, arguments: type[Arguments], do: Callable[[Arguments, str], Done]) -> DefinedTool:
    async def carry_out(args: Mapping[str, Any], ctx: Any) -> Done:
        return await asyncio.to_thread(do, arguments.model_validate(args), ctx["idempotency_key"])

    about = inspect.getdoc(arguments) or ""
    return define_tool(name, arguments, about, annotations={"idempotent": True}, handler=carry_out)


# The agents.

PLAIN = "Short and factual. Plain text, no Markdown."


def _coordinator_prompt() -> LayeredPrompt:
    return layered_prompt(
        identity="You coordinate the recovery of an airport's operations after a day of late departures.",
        communication=PLAIN,
        operational_rules=[
            f"First call {PLANNER} with a planId of your choice. Day and limit are in the inputs, which it sees.",
            f"Then call {EXECUTOR} with that planId. It asks a person and has done what was approved.",
            f"If a revision is asked for, call {PLANNER} with the feedback and the same planId, then {EXECUTOR} "
            "again. If the plan is rejected, stop and say so.",
            "At the end say in one or two sentences what was done: how many flights and vouchers, what amount.",
        ],
    )


def _planner_prompt() -> LayeredPrompt:
    return layered_prompt(
        identity="You plan what passengers get after a day of late departures.",
        communication=PLAIN,
        operational_rules=[
            "Call storePlan once, with the planId you were given. Its actions pass paths on, never values: "
            "_outputPath says where a result goes, and other actions name that path.",
            "One find_delays for day and limit of the input. One split of the flights that it finds, by the "
            "carriers of the policy. For each of these carriers, and for `other`, one price with the amounts of "
            "the policy, all to the same path by _outputMethod merge. One summarise of all groups, last.",
            "What goes to a path: by find_delays an object with `flights`; by split an object with an array for "
            "each group; by price an object with the total of its group.",
            "Results go to †state.delayed, †state.groups, †state.totals and †state.summary.",
            "You never see single flights and never need them.",
            "Where you are given feedback on a plan, follow it and store the plan again under the same planId.",
            "Answer with the planId and one sentence about the plan.",
        ],
        domain_knowledge={
            "voucher_policy": {
                "carriers": list(CARRIERS),
                "amount": STANDARD_AMOUNT,
                "severe_amount": SEVERE_AMOUNT,
                "currency": CURRENCY,
            }
        },
    )


def _executor_prompt() -> LayeredPrompt:
    return layered_prompt(
        identity="You have stored plans carried out.",
        communication=PLAIN,
        operational_rules=[
            "Call executePlan with the planId that you were given, once. A person decides in between.",
            "Report the outcome: carried out with its numbers, rejected, or to be revised, with the feedback word "
            "for word. Never try again by yourself.",
        ],
    )


def define(
    ledger: Ledger,
    *,
    tenant: str,
    model: str,
    scripted: bool,
    carried_out_by: Mapping[str, DefinedTool] | None = None,
) -> DefinedRuntime:
    """Return the whole system. `scripted`: its agents follow scripts and no model is asked. `carried_out_by` stands in for
    `tools(ledger)`."""
    asked = {"id": model, "provider": "anthropic"}
    plan = define_plan(
        PLAN,
        {"summary": str},
        tools=list((carried_out_by or tools(ledger)).values()),
        display_aliases={"draft": "proposed", "executing": "being carried out", "executed": "carried out"},
        variables=True,
        glimpse={
            "groups": {
                "expression": "length(actions[?kind=='price'])",
                "label": "Groups that get vouchers",
                "kind": "integer",
            },
            "dearest": {
                "expression": "max_by(actions[?kind=='price'].payload, &to_number(severe_amount)).severe_amount",
                "label": "Highest voucher",
                "unit": CURRENCY,
                "kind": "decimal",
            },
            "total": {  # the actions compute it
                "expression": "decimal_sum(values(actions[?kind=='summarise'] | [0].payload.totals)[].amount)",
                "label": "Vouchers in total",
                "unit": CURRENCY,
                "kind": "decimal",
            },
        },
    )
    planner = define_planner(PLANNER, asked, _planner_prompt(), plan, toolkits=["variables"])
    executor = define_executor(EXECUTOR, asked, _executor_prompt(), plan, approval={"plans": "always"})
    coordinator = define_coordinator(COORDINATOR, asked, _coordinator_prompt(), routes=[planner, executor])
    return define_runtime(
        define_tenant(tenant),
        [coordinator, planner, executor],
        name=NAME,
        input_schema=Inputs,
        interpreter="scripted" if scripted else None,
    )
