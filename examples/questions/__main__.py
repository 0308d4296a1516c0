"""`python -m examples.questions`: the example, from the command line to the exit code.

Exit codes: 0 the question was answered, 1 it was not, 2 the command line cannot be used.
"""

from __future__ import annotations

import argparse
import os
import sys
import uuid

from plangate import Runtime, create_runtime

from examples.common import command
from examples.common.service import Target
from examples.flight_recovery.data import DataMissing, data_folder
from examples.questions import script
from examples.questions.data import SOURCE, environment, unpack
from examples.questions.render import QuestionsScreen
from examples.questions.system import define

ANSWERED, NOT_ANSWERED = command.EXECUTED, command.NOT_EXECUTED


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    try:
        data_folder()
    except DataMissing as error:
        return command.stop(str(error))
    return command.run(lambda: Example(options).run(), options, asks=False)


class Example:
    """One run: the source declared and profiled, a question, and the reference that answers it."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.scripted = command.uses_script()
        self.screen = QuestionsScreen(command.terminal(), scripted=self.scripted)
        self.target = Target(options.url, options.data_dir, options.tenant)

    async def run(self) -> int:
        options = self.options
        command.introduce(self.screen, options, "a question about 336,776 flights, answered with one query")
        self.target.choose()
        folder = unpack(options.data_dir)
        if options.url is None:  # whoever starts a service says which files its sources may read
            os.environ["PLANGATE_SOURCE_PATHS"] = str(folder)
        defined = define(tenant=options.tenant, model=options.model, scripted=self.scripted)
        data = environment(folder)
        async with create_runtime(defined, url=options.url, data_environment=data) as runtime:
            self.screen.line("service", f"{runtime.url}, runtime {runtime.id} version {runtime.version}")
            await self._profile(runtime)
            self.screen.console.print()
            prompt = script.as_script() if self.scripted else script.in_words()
            async for event in runtime.query(prompt, f"questions-{uuid.uuid4().hex[:12]}"):
                self.screen.show(event)
            return self._conclude(runtime)

    async def _profile(self, runtime: Runtime) -> None:
        """Read the source into the catalog, unless an earlier run did."""
        source = await runtime.get_source(SOURCE)
        if source["profile"]["found"] is None:
            async for event in runtime.profile_source(SOURCE):
                self.screen.show(event)
            source = await runtime.get_source(SOURCE)
        found = source["profile"]["found"] or {}
        self.screen.line(
            "source", f"{SOURCE}: {found.get('tables', 0)} tables, {found.get('columns', 0)} columns"
        )

    def _conclude(self, runtime: Runtime) -> int:
        """Say what answers the question, and how to look at it."""
        console, answer = self.screen.console, self.screen.answer
        console.print()
        if answer is not None:
            handle = f"{answer['kind']}/{answer['id']}"
            self.screen.line("answer", f"reference {handle}, {answer['sizeBytes']:,} bytes, in no prompt")
        command.look(self.screen, self.options, runtime)
        return NOT_ANSWERED if answer is None else ANSWERED


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m examples.questions",
        description="An analyst finds the right table in a catalog, and answers a question with one query.",
        epilog="With ANTHROPIC_API_KEY set the analyst asks a model; without it it follows a script.",
    )
    parser.add_argument(
        "--yes", action="store_true", help="as with the other examples; nothing is asked here"
    )
    command.add_options(parser, data_dir="questions", keeps="database, key, files")
    return command.parse(parser, arguments)


if __name__ == "__main__":
    sys.exit(main())
