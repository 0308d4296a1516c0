"""`python -m examples.pricing`: the example, from the command line to the exit code.

Exit codes: 0 the plan was carried out, 1 it was not, 2 the command line cannot be used.
"""

from __future__ import annotations

import argparse
import sys
import uuid
from typing import Any

from plangate import Runtime, create_runtime

from examples.common import ask, command
from examples.common.command import EXECUTED, NOT_EXECUTED, short
from examples.common.service import Target
from examples.pricing import script
from examples.pricing.render import PricingScreen
from examples.pricing.shop import Shop
from examples.pricing.system import define

ANOTHER_DISCOUNT = ask.RevisionChoice(
    "another discount for the promotion, such as 15 %: ", script.discount_in
)


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    return command.run(lambda: Example(options).run(), options)


class Example:
    """One run: a query to the coordinator, the gates, the dispatch, and what came of it."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.scripted = command.uses_script()
        self.console = command.terminal()
        self.screen = PricingScreen(self.console, scripted=self.scripted)
        self.shop = Shop(options.data_dir / "shop.sqlite")
        self.target = Target(options.url, options.data_dir, options.tenant)
        self.feedback: str | None = options.revise

    async def run(self) -> int:
        options = self.options
        command.introduce(self.screen, options, "winter goes, spring comes: prices and a promotion")
        self.target.choose()
        defined = define(tenant=options.tenant, model=options.model, scripted=self.scripted)
        async with create_runtime(defined, url=options.url, services={"shop": self.shop}) as runtime:
            self.screen.line("service", f"{runtime.url}, runtime {runtime.id} version {runtime.version}")
            await command.link_console(self.screen, options, self.target, runtime.url)
            self.console.print()
            await self._price(runtime)
            code = await self._conclude(runtime)
            await command.stay(self.screen, options)
            return code

    async def _price(self, runtime: Runtime) -> None:
        """Run the query, and without a model another one for each revision that is requested."""
        seen, thread, discount = self.screen.seen, f"pricing-{uuid.uuid4().hex[:12]}", script.DISCOUNT
        while True:
            prompt = script.as_script("spring", discount) if self.scripted else script.in_words()
            seen.decision = ""
            async for event in runtime.query(prompt, thread):
                self.screen.show(event)
                if event["type"] == "approval-required":
                    await self._decide(runtime, event["data"])
            revised = script.discount_in(seen.feedback) if seen.decision == "revise" else None
            if not (self.scripted and revised):
                return
            discount = revised

    async def _decide(self, runtime: Runtime, approval: dict[str, Any]) -> None:
        """Show what the approval is about, ask, and decide about exactly that."""
        subject = await runtime.approval_subject(approval["id"])
        self.screen.gate(approval, subject.value)
        if self.options.console:
            self.console.print("Decide in the console: approve, send back or reject.", style="bold yellow")
            return
        decision = await self._decision(approval["kind"])
        await runtime.respond_to_approval(
            approval["id"], decision.word, decision.feedback, digest=subject.digest
        )

    async def _decision(self, kind: str) -> ask.Decision:
        """Return the decision of the command line, else of the person. Only a plan can be revised."""
        if kind == "plan" and self.feedback:
            feedback, self.feedback = self.feedback, None
            return ask.Decision("revise", feedback)
        if self.options.yes:
            return ask.APPROVED
        revising = ANOTHER_DISCOUNT if self.scripted else ask.RevisionChoice()
        return await ask.decide(self.console, revising if kind == "plan" else None)

    async def _conclude(self, runtime: Runtime) -> int:
        """Says what the service has on record, and how to look at it."""
        seen, options = self.screen.seen, self.options
        plan = await runtime.get_plan(seen.plan_id) if seen.plan_id else {}
        actions = await runtime.plan_actions(seen.plan_id) if seen.plan_id else []
        stands = f"{self.shop.state()}, in {short(self.shop.path)}"
        self.screen.end(actions, {"shop": stands}, None if self.scripted else options.model)
        self.screen.costs()
        command.look(self.screen, options, runtime)
        if plan.get("status") == "executed":
            return EXECUTED
        self.console.print(f"\n{command.not_executed(seen)}", style="bold")
        return NOT_EXECUTED


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m examples.pricing",
        description="Agents plan price changes, you approve or revise, the plan is carried out once.",
        epilog="With ANTHROPIC_API_KEY set the agents ask a model; without it they follow scripts.",
    )
    parser.add_argument("--yes", action="store_true", help="approve without asking")
    parser.add_argument(
        "--revise",
        type=_feedback,
        metavar="TEXT",
        help='send the first plan back with this feedback, such as "15 %% is enough"',
    )
    command.add_console(parser)
    command.add_options(parser, data_dir="pricing", keeps="database, key, shop")
    return command.parse(parser, arguments)


def _feedback(text: str) -> str:
    if command.uses_script() and script.discount_in(text) is None:
        raise argparse.ArgumentTypeError("without a model it has to name a discount, 1 to 50")
    return text


if __name__ == "__main__":
    sys.exit(main())
