"""`python -m examples.handover`: the example, from the command line to the exit code.

Exit codes: 0 the last patch was verified, 1 it was not, 2 the command line cannot be used.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import uuid
from pathlib import Path
from typing import Any

import httpx
from plangate import Runtime, create_runtime

from examples.common import command
from examples.common.service import Target
from examples.handover import script
from examples.handover.render import HandoverScreen
from examples.handover.system import ANALYSIS, VERIFICATION, define

FILES = Path(__file__).parent / "files"
REPORT = "report.md"
FAULTY, RULES = "rates/domestic.toml", "rates/rules.md"

VERIFIED, NOT_VERIFIED = command.EXECUTED, command.NOT_EXECUTED


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    return command.run(lambda: Example(options).run(), options, asks=False)


class Example:
    """One run: files and a report by HTTP, a query to the coordinator, and what came of it."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.scripted = command.uses_script()
        self.console = command.terminal()
        self.screen = HandoverScreen(self.console, scripted=self.scripted)
        self.target = Target(options.url, options.data_dir, options.tenant)

    async def run(self) -> int:
        options = self.options
        command.introduce(self.screen, options, "a parcel has no price: designed, patched, verified")
        self.target.choose()
        defined = define(tenant=options.tenant, model=options.model, scripted=self.scripted)
        async with create_runtime(defined, url=options.url) as runtime:
            self.screen.line("service", f"{runtime.url}, runtime {runtime.id} version {runtime.version}")
            thread = f"handover-{uuid.uuid4().hex[:12]}"
            report = await self._report(runtime, thread)
            self.console.print()
            prompt = script.as_script(report) if self.scripted else script.in_words(report)
            async for event in runtime.query(prompt, thread):
                self.screen.show(event)
            return await self._conclude(runtime)

    async def _report(self, runtime: Runtime, thread: str) -> dict[str, Any]:
        """Put the files in the workspace of the thread, and the report of the fault as an artifact."""
        files = sorted(path for path in FILES.rglob("*") if path.is_file())
        async with self.target.client(runtime.url) as http:
            thread_id = (await _answer(http.post("/threads", json={"threadKey": thread})))["id"]
            for path in files:
                name = path.relative_to(FILES).as_posix()
                await _answer(http.put(f"/threads/{thread_id}/files/{name}", content=path.read_bytes()))
        record = await runtime.artifacts.publish(
            thread_id,
            ANALYSIS,
            REPORT,
            kind="report",
            title="A parcel was refused",
            summary="The till has no price for a parcel within the country.",
            metadata={"files": [FAULTY, RULES]},
        )
        self.screen.line("files", f"{len(files)} in the workspace of {thread_id}")
        self.screen.line("report", f"{record['id']}: {record['summary']}")
        return record

    async def _conclude(self, runtime: Runtime) -> int:
        """Print what the service has on record: the work, where the verification comes from, how to look at it."""
        seen = self.screen.seen
        self.console.print(f"\n$ plangate work {seen.query_id}", style="bold")
        self.console.print(await self._work(runtime, seen.query_id), end="", markup=False, soft_wrap=True)
        verifications = [record for record in self.screen.published if record["channel"] == VERIFICATION]
        if verifications:
            seen.artifact_id = verifications[-1]["id"]
            self.screen.lineage(await runtime.artifacts.lineage(seen.artifact_id))
        command.look(self.screen, self.options, runtime)
        if verifications and verifications[-1].get("metadata", {}).get("passed") is True:
            return VERIFIED
        self.console.print("\nNo patch was verified.", style="bold")
        return NOT_VERIFIED

    async def _work(self, runtime: Runtime, query_id: str) -> str:
        """Return what the command prints."""
        process = await asyncio.create_subprocess_exec(
            Path(sys.executable).parent / "plangate",
            *("work", query_id, "--url", runtime.url, "--tenant", self.options.tenant),
            env={**os.environ, "PLANGATE_API_KEY": self.target.api_key, "COLUMNS": str(self.console.width)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        printed, _ = await process.communicate()
        return printed.decode()


async def _answer(asked: Any) -> dict[str, Any]:
    answer: httpx.Response = await asked
    answer.raise_for_status()
    record: dict[str, Any] = answer.json()
    return record


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m examples.handover",
        description="Three agents repair a table of rates; ids and summaries go from one to the other.",
        epilog="With ANTHROPIC_API_KEY set the agents ask a model; without it they follow scripts.",
    )
    parser.add_argument(
        "--yes", action="store_true", help="as with the other examples; nothing is asked here"
    )
    command.add_options(parser, data_dir="handover", keeps="database, key, files")
    return command.parse(parser, arguments)


if __name__ == "__main__":
    sys.exit(main())
