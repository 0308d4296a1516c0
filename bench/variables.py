"""`make bench ARGS="--suite variables"`: the cost of replacing 1,000 variables with values in one call."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import orjson
from plangate.spec.variables import VariablePath

from app.base.json import strict_json
from app.variables.values import fill_call, parse_call
from bench import machine, programs, report
from bench.endpoint import endpoint
from bench.references import Api, Figures, measure_s, tables

SIZES = {"100 B": 100, "10 kB": 10_000}
COUNT = 1_000
PURE, CALLS = 15, 8
"""Of each measurement in a round."""

ARRAY = {"type": "array", "items": {"type": "string"}}
VARIABLES = [f"†state.rows.v{n}" for n in range(COUNT)]
PLAIN = [f"state.rows.v{n}" for n in range(COUNT)]


def rows_of(size: int) -> dict[str, str]:
    return {f"v{n}": f"{n:07} " + "x" * (size - 8) for n in range(COUNT)}


def _middle(work: Callable[[], object], times: int) -> float:
    """Return the median duration in milliseconds."""
    return statistics.median(measure_s(work) for _ in range(times)) * 1000


def pure(size: int) -> dict[str, float]:
    """Measure the replacement alone, and writing and reading the same arguments as JSON for comparison."""
    state = {"rows": rows_of(size)}
    args = {"values": VARIABLES}
    call = parse_call(args, (), None)
    values = {VariablePath("state"): state}
    made = fill_call(call, values, ("state",), {})
    if made.args["values"] != list(state["rows"].values()):
        raise SystemExit("the values are not those that the variables name")
    apart = _middle(lambda: parse_call(args, (), None), PURE)
    replaced = _middle(lambda: fill_call(call, values, ("state",), {}), PURE)
    as_json = _middle(lambda: orjson.loads(strict_json.dumps(made.args)), PURE)
    return {
        "taken apart, ms": apart,
        "replaced, ms": replaced,
        "both, µs a variable": (apart + replaced) / COUNT * 1000,
        "the same arguments written as JSON and read, ms": as_json,
    }


def _spec(port: int) -> dict[str, Any]:
    loads = [{"name": f"load_{size}", "inputSchema": {"type": "object"}} for size in SIZES.values()]
    take = {"name": "take", "inputSchema": {"type": "object", "properties": {"values": ARRAY}}}
    tools = [*loads, take]
    return {
        "tenant": {"resourceId": "local", "version": "1"},
        "agents": [
            {
                "name": "clerk",
                "role": "specialist",
                "model": {"id": "m", "provider": "scripted"},
                "systemPrompt": "You are in a benchmark.",
                "tools": [tool["name"] for tool in tools],
                "toolkits": ["variables"],
            }
        ],
        "tools": [
            {**tool, "transport": {"kind": "http", "url": f"http://127.0.0.1:{port}/{tool['name']}"}}
            for tool in tools
        ],
        "interpreter": "scripted",
    }


def run_call(api: Api, thread: str, tool: str, **args: Any) -> None:
    """Run a query that makes one call, to its end."""
    asked = {
        "runtime": "default",
        "threadKey": thread,
        "prompt": json.dumps({"tool": tool, "args": args}),
    }
    query = json.loads(api("POST", "/queries", json.dumps(asked).encode()))["id"]
    while not (found := json.loads(api("GET", f"/queries/{query}?waitMs=30000")))["endedAt"]:
        pass
    if found["status"] != "succeeded" or "error" in json.loads(found["output"])["results"][0]:
        raise SystemExit(f"the call failed: {str(found['output'] or found['error'])[:400]}")


def end_to_end(api: Api, size: int, thread: str) -> dict[str, float]:
    """Measure a query with one call, with and without variables; its thread has the values in its state."""
    literal = list(rows_of(size).values())
    calls: dict[str, list[str]] = {"with 1,000 variables, ms": VARIABLES, "with 1,000 short texts, ms": PLAIN}
    if size * COUNT < 500_000:  # else no prompt would hold them
        calls["with the 1,000 values in the prompt, ms"] = literal
    taken = {
        name: _middle(partial(run_call, api, thread, "take", values=values), CALLS)
        for name, values in calls.items()
    }
    first, plain = list(taken.values())[:2]
    return {**taken, "variables / short texts": first / plain}


def measure(rounds: int) -> str:
    """Measure everything; return the tables. The first round is discarded."""
    alone, whole = Figures(), Figures()
    for number in range(rounds):
        for name, size in SIZES.items():
            _add(alone, number, name, pure(size))
    answers = {f"/load_{size}": strict_json.dumps({"output": rows_of(size)}) for size in SIZES.values()}
    with ExitStack() as stack:
        port = stack.enter_context(endpoint({**answers, "/take": b'{"output":1}'}))
        data = stack.enter_context(programs.data_dir())
        service, _ = stack.enter_context(programs.service(data, allow_hosts=f"127.0.0.1:{port}"))
        key = Path(data / "local-key").read_text("utf-8").strip()
        api = stack.enter_context(closing(Api(service.port, key)))
        api("POST", "/runtimes", json.dumps(_spec(port)).encode())
        for name, size in SIZES.items():
            run_call(api, name, f"load_{size}", _outputPath="†state.rows")
        for number in range(rounds):
            for name, size in SIZES.items():
                _add(whole, number, name, end_to_end(api, size, name))
        peak = machine.peak_rss_mb(service.pid)
    about = (
        f"{machine.kind()}; Python {sys.version.split()[0]}; {rounds - 1} rounds; median (min–max) of the rounds. A call "
        f"with {COUNT:,} variables, each of another text in the state of its thread. The service's own process had "
        f"{peak:.0f} MiB at most."
    )
    columns = list(SIZES)
    return "\n".join([about, "", *tables(alone, columns), "", *tables(whole, columns)])


def _add(figures: Figures, number: int, size: str, found: dict[str, float]) -> None:
    told = ", ".join(f"{name} {value:.2f}" for name, value in found.items())
    print(f"round {number}: {size}: {told}", file=sys.stderr)
    for name, value in found.items():
        if number:
            figures.add(name, size, value)


def run(*, quick: bool, page: Path | None) -> None:
    """Measures, prints, and with a page writes the tables into it."""
    text = measure(2 if quick else 5)
    print(text)
    if page is not None:
        report.write(page, text, "variables")
