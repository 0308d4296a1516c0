"""The system of agents as data: prompts, tools, plan, reference, write boundary.

Nothing here holds the shop: handlers find it in `ctx`, where `create_runtime(services={"shop": ...})` put it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Annotated, Any, Literal

from plangate import (
    ActionDispatcher,
    DefinedRuntime,
    TaggedUnion,
    define_coordinator,
    define_executor,
    define_plan,
    define_planner,
    define_reference,
    define_runtime,
    define_specialist,
    define_tenant,
    define_tool,
    layered_prompt,
)
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from examples.pricing.catalogue import Product, Season

PLAN, REFERENCE = "Campaign", "Products"
COORDINATOR, PLANNER, COPYWRITER, EXECUTOR = "coordinator", "planner", "copywriter", "executor"
HEADLINE = "Lighter days, lighter clothes"

Code = Annotated[str, Field(pattern=r"^[A-Z]{3,12}$", description="What customers type, such as SPRING.")]
Discount = Annotated[int, Field(ge=1, le=50, description="Percent off.")]


class Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")


# The plan: two kinds of action, and the context that they stand in.


class PriceChange(Closed):
    """Sets the prices of the referenced products, from their list prices."""

    kind: Literal["price_change"]
    percent: Annotated[
        int, Field(ge=-50, le=50, description="Percent of the list price; -20 is a fifth off.")
    ]


class Promotion(Closed):
    """A discount on the referenced products for who knows the code."""

    kind: Literal["promotion"]
    code: Code
    percent: Discount
    headline: Annotated[str, Field(max_length=60)]


Action = TaggedUnion(PriceChange, Promotion)


class Context(Closed):
    """The context of the actions for the person who decides."""

    ends: date
    budget_cents: Annotated[int, Field(ge=0, description="What was reserved.")]


class Campaign(Closed):
    """A plan of price changes between two seasons."""

    summary: str
    context: Context
    actions: Annotated[list[Action], Field(min_length=1)]  # type: ignore[valid-type]


CAMPAIGN = define_plan(
    PLAN,
    Campaign,
    display_aliases={
        "draft": "proposed",
        "executing": "being put on the shelves",
        "executed": "on the shelves",
    },
    glimpse={
        "prices": {
            "expression": "sum(actions[?kind=='price_change'].references[].glimpse.products)",
            "label": "Prices that change",
            "kind": "integer",
        },
        "reduction": {
            "expression": "min(actions[?kind=='price_change'].payload.percent)",
            "label": "Largest reduction",
            "unit": "%",
            "kind": "integer",
        },
        "promotion": {
            "expression": "max(actions[?kind=='promotion'].payload.percent)",
            "label": "Largest promotion",
            "unit": "%",
            "kind": "integer",
        },
        "budget": {
            "expression": "context.budget_cents",
            "label": "Reserved",
            "unit": "cents",
            "kind": "integer",
        },
    },
)


# The reference: hundreds of products outside of every prompt. The service makes the glimpse.


class Products(Closed):
    season: Season
    products: list[Product]


PRODUCTS = define_reference(
    REFERENCE,
    Products,
    glimpse={
        "season": "season",
        "products": "length(products)",
        "in_stock": "sum(products[].stock)",
        "cheapest_cents": "min(products[].list_cents)",
        "dearest_cents": "max(products[].list_cents)",
    },
)


class Handle(Closed):
    """The handle of a reference."""

    kind: Literal["Products"]
    id: str


# The tools.


class Search(Closed):
    season: Season
    min_stock: Annotated[int, Field(ge=0, description="Only products of which there are so many.")]


@define_tool(
    "find_products",
    Search,
    f"Finds the products of a season. Returns the handle of a reference of kind {REFERENCE} with a glimpse. "
    "The products themselves stay outside: pass the handle on.",
    annotations={"read_only": True, "idempotent": True},
)
def find_products(args: Mapping[str, Any], ctx: Any) -> Any:
    """Store the rows as a reference, and give the agent its handle and glimpse."""
    search = Search.model_validate(args)
    found = ctx.shop.find(search.season, search.min_stock)
    ctx.progress(f"{len(found)} products of {search.season} with a stock of {search.min_stock} or more")
    return ctx.references.create(PRODUCTS, Products(season=search.season, products=found))


class Reservation(Closed):
    code: Code
    percent: Discount
    products: Handle


class Reserved(Closed):
    code: Code
    percent: int
    budget_cents: int


@define_tool(
    "reserve_budget",
    Reservation,
    "Reserves what a promotion costs if everything in stock is sold with its discount. A person is asked "
    "about more than 20 percent.",
    approval={"kind": "dynamic", "value": "deep_discount"},
    output_schema=Reserved,
    annotations={"idempotent": True},
)
def reserve_budget(args: Mapping[str, Any], ctx: Any) -> Reserved:
    """Resolve the products here, and only here: not in the prompt of the agent that asks."""
    asked = Reservation.model_validate(args)
    found = Products.model_validate(ctx.references.resolve(asked.products.kind, asked.products.id))
    cents = sum(product.list_cents * product.stock for product in found.products) * asked.percent // 100
    ctx.shop.reserve(asked.code, cents)
    return Reserved(code=asked.code, percent=asked.percent, budget_cents=cents)


# The write boundary: no model can call it, and it sees nothing but approved actions.

TYPED: TypeAdapter[PriceChange | Promotion] = TypeAdapter(Action)


def carry_out(actions: Sequence[Mapping[str, Any]], ctx: Any) -> dict[str, Any]:
    """All actions of a plan. Each is made typed, and has its products, before the first of them is done."""
    typed = [TYPED.validate_python({"kind": action["kind"], **action["payload"]}) for action in actions]
    products = [_products(action, ctx["resolved_refs"]) for action in actions]
    changed, told = 0, []
    for written, action, found in zip(actions, typed, products, strict=True):
        key = written["idempotencyKey"]
        if isinstance(action, PriceChange):
            news = ctx.shop.change_prices(key, found, action.percent)
            told.append(f"{news} of {len(found)} prices set to {action.percent:+} %.")
        else:
            news = ctx.shop.promote(key, found, action.code, action.percent, action.headline)
            told.append(f"{news} of {len(found)} products put in {action.code} at {action.percent} %.")
        changed += news
    return {"entitiesAffected": changed, "summary": " ".join(told)}


def _products(action: Mapping[str, Any], resolved: Mapping[str, Mapping[str, Any]]) -> list[Product]:
    """Return what is behind the action's references: the service put it in, as it was when the plan was approved."""
    found = [
        product
        for ref in action["references"]
        for product in Products.model_validate(resolved[ref["kind"]][ref["id"]]).products
    ]
    if not found:
        raise ValueError(
            f"The action {action['kind']} names no {REFERENCE}, so it says nothing about any of them."
        )
    return found


# The agents.

PLAIN = "Short and factual. Plain text, no Markdown."


class Slogan(Closed):
    """The answer of the copywriter."""

    headline: Annotated[str, Field(min_length=1, max_length=60)]


def define(*, tenant: str, model: str, scripted: bool) -> DefinedRuntime:
    """Return the whole system. `scripted`: agents follow scripts, the copywriter has one answer."""

    def asking(without: str) -> dict[str, str]:
        return {"id": "none", "provider": without} if scripted else {"id": model, "provider": "anthropic"}

    copywriter = define_specialist(
        COPYWRITER,
        asking("mock"),
        layered_prompt(
            identity="You write headlines for a clothes shop.",
            operational_rules=["One headline, at most 60 characters, without numbers."],
            output_format={"headline": "the headline"},
        ),
        output_schema=Slogan,
    )
    planner = define_planner(
        PLANNER,
        asking("scripted"),
        layered_prompt(
            identity="You plan price changes and promotions for a clothes shop.",
            communication=PLAIN,
            operational_rules=[
                "Call find_products for each group of products. It returns a handle {kind, id} with a "
                "glimpse; work with the glimpse. You never see single products and never need them.",
                "Before you plan a promotion, call reserve_budget for it, and ask "
                f"{COPYWRITER} for its headline.",
                "Then call storePlan once, with the planId you were given. Give every action `references` "
                f"with the handle of its {REFERENCE}: that is how it reaches them.",
                "Where you are given feedback on a plan, follow it, reserve the budget again, and store the "
                "plan under the same planId.",
                "Answer with the planId and one sentence about the plan.",
            ],
        ),
        CAMPAIGN,
        tools=[find_products, reserve_budget],
        references=[PRODUCTS],
        toolkits=["agents"],
        routes=[copywriter],
    )
    executor = define_executor(
        EXECUTOR,
        asking("scripted"),
        layered_prompt(
            identity="You have stored plans carried out.",
            communication=PLAIN,
            operational_rules=[
                "Call executePlan with the planId that you were given, once. A person decides in between.",
                "Report the outcome: carried out with its numbers, rejected, or to be revised, with the "
                "feedback word for word. Never try again by yourself.",
            ],
        ),
        CAMPAIGN,
        toolkits=[{"id": "references", "config": {"tools": []}}],  # nothing that could read the products
        approval={"plans": "always"},
    )
    coordinator = define_coordinator(
        COORDINATOR,
        asking("scripted"),
        layered_prompt(
            identity="You coordinate the prices of a clothes shop.",
            communication=PLAIN,
            operational_rules=[
                f"First call {PLANNER}: give it the task and a planId of your choice.",
                f"Then call {EXECUTOR} with that planId. It asks a person and carries out what was approved.",
                f"If a revision is asked for, call {PLANNER} with the feedback and the same planId, then "
                f"{EXECUTOR} again. If the plan is rejected, stop and say so.",
                "At the end say in one or two sentences what was done.",
            ],
        ),
        routes=[planner, executor],
    )
    return define_runtime(
        define_tenant(tenant),
        [coordinator, planner, copywriter, executor],
        name="pricing",
        approval_predicates={"deep_discount": "args.percent > 20"},
        action_dispatcher=ActionDispatcher(carry_out, replay="safe"),
        mock_response=Slogan(headline=HEADLINE).model_dump_json() if scripted else None,
    )
