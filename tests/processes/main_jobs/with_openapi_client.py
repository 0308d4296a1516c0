"""The main job with what openapi-python-client generates. Its types are checked where they are generated."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
import time
from typing import Any, TypeVar, cast

from plangate_client import AuthenticatedClient
from plangate_client.api.approvals import decide_approval, list_approvals, read_approval_subject
from plangate_client.api.client_tools import claim_tool_call, post_tool_result, report_tool_progress
from plangate_client.api.events import list_query_events
from plangate_client.api.plans import read_plan
from plangate_client.api.queries import list_query_work, submit_query
from plangate_client.api.runtimes import register_runtime
from plangate_client.models import (
    ActionCall,
    Claim,
    Decide,
    DecideDecision,
    FinishEvent,
    PlanStatusChangeEvent,
    Problem,
    Progress,
    Result,
    RuntimeSpec,
    SubmitQuery,
    ToolCall,
    ToolVersion,
)

T = TypeVar("T")


def connect() -> AuthenticatedClient:
    return AuthenticatedClient(os.environ["PLANGATE_URL"], os.environ["PLANGATE_API_KEY"])


def checked(response: T | Problem | None) -> T:
    if response is None or isinstance(response, Problem):
        raise SystemExit(f"the service refuses: {response}")
    return response


class Server:
    """Claims and answers the calls of the runtime in a thread."""

    def __init__(self, runtime_id: str) -> None:
        self.calls: list[dict[str, Any]] = []
        self.sent: list[Any] = []
        self._runtime_id = runtime_id
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ends.set()
        self._thread.join()

    def _serve(self) -> None:
        with connect() as client:
            names = [ToolVersion(name="look_up"), ToolVersion(name="actions")]
            while not self._ends.wait(0.05):
                claim = Claim(tools=names, runtime_id=self._runtime_id)
                for call in checked(claim_tool_call.sync(client=client, body=claim)).calls:
                    if isinstance(call, ToolCall):
                        output = self._look_up(client, call)
                    elif isinstance(call, ActionCall):
                        output = self._send(call)
                    result = Result(claim_token=call.claim_token, output=output)
                    posted = post_tool_result.sync(call.work_id, client=client, body=result)
                    assert checked(posted).adopted

    def _look_up(self, client: AuthenticatedClient, call: ToolCall) -> dict[str, Any]:
        progress = Progress(claim_token=call.claim_token, label="reading", phase_index=1, total_phases=1)
        checked(report_tool_progress.sync(call.work_id, client=client, body=progress))
        args = cast(dict[str, Any], call.args)
        self.calls.append({"args": args, "toolUseId": call.context.tool_use_id, "agent": call.context.agent})
        return {"address": f"{args['name']}@example.com"}

    def _send(self, call: ActionCall) -> dict[str, Any]:
        self.sent += [action.payload.to_dict() for action in call.actions]
        return {"entitiesAffected": len(call.actions)}


def main(job: dict[str, Any]) -> None:
    with connect() as client:
        spec = RuntimeSpec.from_dict(job["spec"])
        runtime = checked(register_runtime.sync(client=client, body=spec))
        query = SubmitQuery(prompt=json.dumps(job["prompt"]), runtime_id=runtime.id)
        started = checked(submit_query.sync(client=client, body=query))
    types: list[str] = []
    seqs: list[int] = []
    after, plan_id, digest = "", "", ""
    with Server(runtime.id) as server:
        for connection in ("until the approval", "after it"):  # the second one resumes with the cursor
            with connect() as client:
                while True:
                    page = checked(
                        list_query_events.sync(started.id, client=client, after=after)
                        if after
                        else list_query_events.sync(started.id, client=client)
                    )
                    for event in page.events:
                        types.append(event.type_)
                        seqs.append(event.seq)
                        if isinstance(event, PlanStatusChangeEvent):
                            plan_id = event.data.plan_id
                    after = page.next_cursor or after
                    if connection == "until the approval" and "approval-required" in types:
                        break
                    if types and types[-1] == "finish":
                        break
                    time.sleep(0.05)
                if connection == "until the approval":
                    digest = approve(client, started.id)
    assert isinstance(event, FinishEvent)
    with connect() as client:
        plan = checked(read_plan.sync(plan_id, client=client))
        work = checked(list_query_work.sync(started.id, client=client))
    report = {
        "types": types,
        "seqs": seqs,
        "calls": server.calls,
        "sent": server.sent,
        "digest": digest,
        "plan": plan.status,
        "work": len(work.items),
    }
    print(json.dumps(report))


def approve(client: AuthenticatedClient, query_id: str) -> str:
    """Approve by the digest of the bytes that were received, and return it."""
    (approval,) = checked(list_approvals.sync(client=client, query_id=query_id)).items
    subject = read_approval_subject.sync_detailed(approval.id, client=client).content
    digest = hashlib.sha256(subject).hexdigest()
    decision = Decide(decision=DecideDecision.APPROVE, digest=digest)
    checked(decide_approval.sync(approval.id, client=client, body=decision))
    return digest


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        main(json.load(file))
