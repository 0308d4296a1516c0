"""What a run of the flight demo sends to a model: `python -m bench.prompt_size` prints it.

The model is the vendor's stand-in of the tests, which answers as a good model would. Sizes are characters of the JSON
of each request: the system prompt, the definitions of tools, and the messages, summed over the requests of the run.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections import defaultdict
from typing import Any

from tests.processes.test_demo import PLAYS, Lab, Model


def sizes(body: dict[str, Any]) -> dict[str, int]:
    """Return the characters of the parts of a request."""
    return {
        part: len(json.dumps(body.get(part, ""), ensure_ascii=False))
        for part in ("system", "tools", "messages")
    }


async def measure() -> list[dict[str, Any]]:
    """Run the demo and return its requests."""
    lab, model = Lab(), Model()
    await model.start()
    try:
        environment = {"ANTHROPIC_API_KEY": "none", "ANTHROPIC_BASE_URL": model.url}
        done = await asyncio.to_thread(lab.run, "--yes", **environment)
        if done.returncode:
            raise RuntimeError(done.stdout + done.stderr)
    finally:
        await model.stop()
        shutil.rmtree(lab.folder)
    return [json.loads(body) for body in model.bodies]


def main() -> None:
    by_agent: dict[str, list[dict[str, int]]] = defaultdict(list)
    for body in asyncio.run(measure()):
        asked = json.dumps(body["system"])
        by_agent[next(agent for agent in PLAYS if PLAYS[agent][0] in asked)].append(sizes(body))
    print("| agent | requests | system prompt | tools | messages | all |")
    print("| --- | --- | --- | --- | --- | --- |")
    every = [size for held in by_agent.values() for size in held]
    for agent, held in (*by_agent.items(), ("all", every)):
        sums = [sum(size[part] for size in held) for part in ("system", "tools", "messages")]
        print(f"| {agent} | {len(held)} | {' | '.join(f'{n:,}' for n in (*sums, sum(sums)))} |")


if __name__ == "__main__":
    main()
