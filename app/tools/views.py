"""The responses of the routes of client calls."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from plangate.spec.models import ToolSpec
from plangate.statuses import CallStatus
from pydantic import Field, JsonValue

from app.base.responses import CursorPage, View
from app.events import JsonObject


class CallContext(View):
    """The origin of a call. `toolUseId` is the model's own id of the call, `resourceId` the tenant's id."""

    tool_use_id: str | None = None
    work_id: str | None = None
    query_id: str
    thread_id: str
    agent: str | None = None
    runtime_id: str
    resource_id: str | None = None


class Claimed(View):
    """A claimed call. Posting its result needs `claimToken`; `claims` counts all claims of the call."""

    work_id: str
    query_id: str
    name: str
    """The name of the tool or dispatcher."""
    definition_digest: str
    claim_token: str
    claimed_until: datetime
    timeout_ms: int
    claims: int
    """How often it was claimed, this time included."""
    context: CallContext


class ToolCall(Claimed):
    """A tool to run with `args`."""

    purpose: Literal["tool"]
    """Always `tool`."""
    args: JsonValue


class ReferenceName(View):
    kind: str
    """Its kind."""
    id: str
    """The id of the reference."""


class ActionToDo(View):
    """An approved action. Every attempt at it has the same key."""

    index: int
    """The place of the action in its plan, counted from 0."""
    kind: str
    """The kind of the action."""
    payload: JsonObject
    """The fields of the action."""
    references: list[ReferenceName]
    """The references that it names."""
    idempotency_key: str


class ActionCall(Claimed):
    """Approved actions to carry out. `resolvedRefs` has the values of their references by kind and id. `args` is the
    payload, if a declared tool carries out the one action."""

    purpose: Literal["action"]
    """Always `action`."""
    plan_id: str
    spec_name: str
    revision: int
    digest: str
    """The SHA-256 of the plan, in hex."""
    idempotency_key: str
    actions: list[ActionToDo]
    """The actions to carry out."""
    inputs: JsonObject | None
    attempt: int
    """The number of the attempt, from 1."""
    resolved_refs: dict[str, dict[str, JsonValue]]
    """The values of the references, by kind and id."""
    args: JsonValue = None
    """The payload, if a declared tool carries out the one action."""


class PredicateContext(View):
    """What a predicate can use besides the arguments."""

    tool: str
    agent: str
    thread_id: str
    query_id: str
    resource_id: str
    spent_usd: float
    """What the query has cost so far, in US dollars."""


class PredicateCall(Claimed):
    """A question to a client process: whether a tool call with these `args` needs an approval. Its result
    is `true` or `false`."""

    purpose: Literal["predicate"]
    """Always `predicate`."""
    args: JsonObject
    predicate: PredicateContext
    """What a predicate may look at beside the arguments."""


class ClaimedCalls(View):
    calls: list[Annotated[ToolCall | ActionCall | PredicateCall, Field(discriminator="purpose")]]
    """The calls that are the claimant's now."""


class LateResult(View):
    """A result that came after the claim had lapsed: `output` or `error`, or a `note` if it is larger than 4 KiB."""

    output: JsonValue = None
    """What the tool or dispatcher returned."""
    error: str | None = None
    """Why it failed."""
    note: str | None = None
    """How large the result is, in place of it."""


class CallView(View):
    """A call that left the service, without its arguments. `sender` says who sends it to its code. `lateResult` is a
    result that came after the claim had lapsed: it is evidence and changes nothing."""

    work_id: str
    query_id: str
    purpose: Literal["tool", "action", "predicate"]
    """What it is a call of."""
    sender: Literal["client", "service"]
    """Whether a client claims it or the service sends it."""
    name: str
    """The name of the tool or dispatcher."""
    status: CallStatus
    attempts: int
    claimed_by: str | None
    """The principal that claimed it."""
    created_at: datetime
    done_at: datetime | None
    """When it ended."""
    late_result: LateResult | None
    """A result that came too late: it is kept as evidence and changes nothing."""


class CallPage(CursorPage):
    items: list[CallView]


class ClaimHeld(View):
    claimed_until: datetime


class ProgressRecorded(View):
    recorded: Literal[True]
    """Always true."""


class ResultPosted(View):
    """`adopted` is false for a late result: it is kept as evidence and changes nothing."""

    work_id: str
    adopted: bool
    """Whether it counts; a late result is kept as evidence and changes nothing."""


class ToolEventEmitted(View):
    """The event is in the journal of the query."""

    emitted: Literal[True]
    """Always true."""


class ClaimReleased(View):
    work_id: str
    released: Literal[True]
    """Always true."""


class McpTools(View):
    """Tools have the names of the server if a spec accepts them; otherwise `transport.tool` has the server's name."""

    tools: list[ToolSpec]
    """The tools, ready for a spec."""
