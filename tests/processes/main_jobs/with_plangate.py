"""The main job with the Python library. Its types are checked by `make check`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from plangate import RuntimeSpec, ToolSpec, create_runtime, define_tool
from plangate.api.models import Event


async def main(job: dict[str, Any]) -> None:
    calls: list[dict[str, Any]] = []
    sent: list[Any] = []

    def look_up(args: Any, ctx: Any) -> dict[str, str]:
        ctx.progress("reading", phase_index=1, total_phases=1)
        calls.append({"args": args, "toolUseId": ctx["tool_use_id"], "agent": ctx["agent"]})
        return {"address": f"{args['name']}@example.com"}

    def dispatch(actions: Any, ctx: Any) -> dict[str, int]:
        sent.extend(action["payload"] for action in actions)
        return {"entitiesAffected": len(actions)}

    (tool,) = (ToolSpec.model_validate(tool) for tool in job["spec"]["tools"])
    handled = define_tool(tool.name, tool.input_schema, tool.description, handler=look_up)
    parsed = RuntimeSpec.model_validate(job["spec"])
    spec = parsed.model_copy(update={"tools": (handled,)})
    where = {"url": os.environ["PLANGATE_URL"], "api_key": os.environ["PLANGATE_API_KEY"]}
    events: list[Event] = []
    async with create_runtime(spec, action_dispatcher=dispatch, **where) as runtime:
        started = runtime.query(job["prompt"], "main-job")
        async for event in started:
            events.append(event)
            if event.type == "approval-required":
                break
        await started.aclose()
    plan_id = ""
    # Another program, which resumes after the last event that the first one saw.
    async with create_runtime(spec, action_dispatcher=dispatch, **where) as runtime:
        (approval,) = await runtime.approvals(query_id=event.query_id)
        subject = await runtime.approval_subject(approval.id)
        await runtime.respond_to_approval(approval.id, "approve", digest=subject.digest)
        async for event in runtime.query(None, None, resume=events[-1]):
            events.append(event)
            if event.type == "plan-status-change":
                plan_id = event.data.plan_id
        plan = await runtime.get_plan(plan_id)
        work = await runtime.work(event.query_id)
    report = {
        "types": [event.type for event in events],
        "seqs": [event.seq for event in events],
        "calls": calls,
        "sent": sent,
        "digest": subject.digest,
        "plan": plan.status,
        "work": len(work),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    asyncio.run(main(json.loads(Path(sys.argv[1]).read_text())))
