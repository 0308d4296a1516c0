"""The command line of an example: the options that all of them have, and the way to the exit code.

Exit codes: 0 what was asked for was done, 1 it was not, 2 the command line cannot be used.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import httpx
from plangate import PlangateError, Runtime
from rich.console import Console
from rich.text import Text

from examples.common import ask
from examples.common.render import DEFAULT_TENANT, QueryState, Screen, key_from_file
from examples.common.service import Target

MODEL = "claude-sonnet-4-5"
DATA = Path(__file__).resolve().parents[2] / ".data"
LOOK_PORT = 8711
WIDTH = 100

EXECUTED, NOT_EXECUTED, USAGE = 0, 1, 2


def uses_script() -> bool:
    """Return whether the agents follow scripts because there is no model key."""
    return not os.environ.get("ANTHROPIC_API_KEY")


def terminal() -> Console:
    """Return a console, with plain text of a fixed width if the output is not a terminal."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH
    return console


def add_options(parser: argparse.ArgumentParser, *, data_dir: str, keeps: str) -> None:
    """Add the options that every example has. `data_dir` is below `.data`, where it keeps its things: `keeps`."""
    add = parser.add_argument
    add("--model", default=MODEL, metavar="ID", help="the model to ask, if there is a key (%(default)s)")
    add("--data-dir", type=_path, default=DATA / data_dir, metavar="DIR", help=f"{keeps} (.data/{data_dir})")
    add("--url", help="a service that runs already; its key is read from PLANGATE_API_KEY")
    add("--tenant", default="local", metavar="ID", help="the tenant of that key (%(default)s)")


def add_console(parser: argparse.ArgumentParser) -> None:
    """Add the option of examples whose approvals can be decided in the console."""
    parser.add_argument(
        "--console", action="store_true", help="decide in the console, in the browser, and look around there"
    )


def parse(parser: argparse.ArgumentParser, arguments: list[str] | None) -> argparse.Namespace:
    options = parser.parse_args(arguments)
    if options.url and not os.environ.get("PLANGATE_API_KEY"):
        parser.error("--url needs the service's key in PLANGATE_API_KEY")
    return options


def run(
    example: Callable[[], Coroutine[Any, Any, int]], options: argparse.Namespace, *, asks: bool = True
) -> int:
    """Return the exit code of an example. With `asks`, a person decides unless the options say otherwise. Errors are
    printed in one line."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    elsewhere = getattr(options, "yes", False) or getattr(options, "console", False)
    if asks and not elsewhere and not sys.stdin.isatty():
        return stop(
            "A person has to approve the plan, and there is no terminal to ask at: add --yes, or --console.",
            USAGE,
        )
    try:
        options.data_dir.mkdir(mode=0o711, parents=True, exist_ok=True)
        logging.basicConfig(filename=options.data_dir / "demo.log", level=logging.WARNING)
        return asyncio.run(example())
    except (PlangateError, httpx.HTTPError) as error:
        return stop(str(error))
    except OSError as error:
        return stop(f"{error}. Is the place writable? Choose another one with --data-dir.")
    except KeyboardInterrupt:
        return stop("\nStopped. What nobody approved is not carried out.")


def stop(message: str, code: int = NOT_EXECUTED) -> int:
    print(message, file=sys.stderr)
    return code


async def link_console(screen: Screen, options: argparse.Namespace, target: Target, url: str) -> None:
    """Print a link to the console that signs in once: at a terminal, or if decisions are made there."""
    if not (options.console or screen.console.is_terminal):
        return
    async with target.client(url) as http:
        response = await http.post("/session/tickets")
    response.raise_for_status()
    screen.console.print(
        Text(f"Open the console within five minutes:\n{response.json()['url']}\n"), soft_wrap=True
    )


async def stay(screen: Screen, options: argparse.Namespace) -> None:
    """Keep the service of the example running until the person has seen enough in the console."""
    if options.console and not options.url:
        screen.console.print("\nThe console stays open. Press Enter to end the demo.", style="bold yellow")
        await ask.read_line()


def not_executed(seen: QueryState) -> str:
    """Return why a plan was not executed."""
    if (seen.approval_kind, seen.decision) == ("plan", "reject"):
        return "The plan was rejected, so nothing was carried out."
    return "The plan was not carried out."


def introduce(screen: Screen, options: argparse.Namespace, what: str) -> None:
    """Print what is shown, by whom, and where it is kept."""
    screen.line("demo", what)
    if uses_script():
        screen.line(
            "model", "none, as ANTHROPIC_API_KEY is not set: agents follow scripts, all else is the same"
        )
    else:
        screen.line("model", options.model)
    screen.line("data", str(short(options.data_dir)))


def look(screen: Screen, options: argparse.Namespace, runtime: Runtime) -> None:
    """Print how to inspect the results after the example has ended."""
    plangate, data = short(Path(sys.executable).parent / "plangate"), short(options.data_dir)
    work = f"{plangate} work {screen.seen.query_id}"
    if options.tenant != DEFAULT_TENANT:
        work += f" --tenant {options.tenant}"
    if options.url:
        screen.look(runtime.url, "$PLANGATE_API_KEY", work, tenant=options.tenant)
        return
    screen.look(
        f"http://127.0.0.1:{LOOK_PORT}",
        key_from_file(data / "local-key"),
        f"{work} --data-dir {data}",
        tenant=options.tenant,
        serve=f"{plangate} serve --data-dir {data} --port {LOOK_PORT}",
    )


def short(path: Path) -> Path:
    """Relative to where the person is, where it is below."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _path(text: str) -> Path:
    return Path(text).expanduser().absolute()
