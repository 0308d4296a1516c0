"""Records of responses, and parts of requests. Generated from openapi/openapi.json by `make openapi`. Do not edit."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

from plangate.api.record import Record


class AcceptedPlan(Record):
    """The query that executes the plan `planId`: a copy, where the plan had been approved before."""

    __slots__ = ()
    id: str
    """The id of the query."""
    links: QueryLinks
    """Paths of the query's own routes."""
    plan_id: str
    """The id of the plan."""
    runtime_id: str
    """The id of the version of the runtime."""
    status: Literal["queued", "running"]
    """The status."""
    thread_id: str
    """The id of the thread."""


class AcceptedQuery(Record):
    """A query that is on record."""

    __slots__ = ()
    id: str
    """The id of the query."""
    links: QueryLinks
    """Paths of the query's own routes."""
    runtime_id: str
    """The id of the version of the runtime."""
    status: Literal["queued", "running"]
    """The status."""
    thread_id: str
    """The id of the thread."""


class ActionArtifact(Record):
    """An artifact published by the call of an action; `GET /artifacts/{id}` has the record."""

    __slots__ = ()
    channel: str
    """The channel, a named line of artifacts."""
    id: str
    """The id of the artifact."""
    path: str
    """The path."""
    status: Literal["active", "superseded", "withdrawn"]
    """The status."""


class ActionCall(Record):
    """Approved actions to carry out. `resolvedRefs` has the values of their references by kind and
    id. `args` is the payload, if a declared tool carries out the one action.
    """

    __slots__ = ()
    actions: list[ActionToDo]
    """The actions to carry out."""
    args: Any
    """The payload, if a declared tool carries out the one action."""
    attempt: int
    """The number of the attempt, from 1."""
    claim_token: str
    """The token of the claim on the call."""
    claimed_until: str
    """When the claim expires unless a heartbeat extends it."""
    claims: int
    """How often it was claimed, this time included."""
    context: CallContext
    """Where in which query the call was made."""
    definition_digest: str
    """The SHA-256 of the tool's definition, in hex."""
    digest: str
    """The SHA-256 of the plan, in hex."""
    idempotency_key: str
    """The key that is the same for every attempt."""
    inputs: dict[str, Any] | None
    """The inputs of the query, which variables read."""
    name: str
    """The name of the tool or dispatcher."""
    plan_id: str
    """The id of the plan."""
    purpose: Literal["action"]
    """Always `action`."""
    query_id: str
    """The id of the query."""
    resolved_refs: dict[str, dict[str, Any]]
    """The values of the references, by kind and id."""
    revision: int
    """The number of the revision, from 1."""
    spec_name: str
    """The name of the plan spec."""
    timeout_ms: int
    """How long it may take, in milliseconds."""
    work_id: str
    """The id of the work record."""


class ActionChange(Record):
    """A transition of the action `index` of a plan, counted from 0."""

    __slots__ = ()
    from_: Literal["pending", "dispatched", "succeeded", "failed", "skipped", "unknown"] | None
    """The status before; null at first."""
    index: int
    """The place of the action in its plan, counted from 0."""
    kind: str
    """The kind of the action."""
    plan_id: str
    """The id of the plan."""
    to: Literal["pending", "dispatched", "succeeded", "failed", "skipped", "unknown"]
    """The status after."""


class ActionChangeView(Record):
    """An action of two revisions, or of one of them. Every difference is in `fields`."""

    __slots__ = ()
    after: int | None
    """Its index in the later revision."""
    before: int | None
    """Its index in the earlier revision."""
    change: Literal["same", "changed", "added", "removed"]
    """Whether it is the same in both, changed, or only in one."""
    fields: list[FieldChangeView]
    """Its differences."""
    kind: str
    """The kind of the action."""
    matched_by: Literal["key", "equality", "position"] | None
    """Why the two are compared: the key that the plan declares, equality, or kind and order
    between equal actions.
    """
    moved: bool
    """Whether its order among the matched actions changed."""


class ActionErrorView(Record):
    """Why an action failed or what is known of its outcome, or what a person who settled it said."""

    __slots__ = ()
    code: str | None
    """A stable code."""
    details: Any
    """What they know about it; in a result of a dispatcher, whatever it returned."""
    message: str | None
    """What happened."""
    settled_by: str | None
    """The principal that settled it."""
    written_to: list[str] | None
    """The output paths that it was written to."""


class ActionPage(Record):
    """A ActionPage."""

    __slots__ = ()
    items_: list[ActionView]
    """The items of the page."""
    next_cursor: str | None
    """Send it as `cursor`; null on the last page."""


class ActionResultView(Record):
    """What the dispatcher of an action returned, or what a person who settled it said."""

    __slots__ = ()
    details: Any
    """What they know about it; in a result of a dispatcher, whatever it returned."""
    entities_affected: int | None
    """How many things the action changed."""
    settled_by: str | None
    """The principal that settled it."""
    summary: str | None
    """What was done, in words."""
    written_to: list[str] | None
    """The output paths that it was written to."""


class ActionStatusChangeEvent(Record):
    """An action of an executing plan went from one status to the next."""

    __slots__ = ()
    agent: str | None
    """The agent at work; empty for a plan that a host executes."""
    at: str
    """When it happened."""
    data: ActionChange
    """The transition."""
    parent_work_id: str | None
    """The work record above; null at the root."""
    query_id: str
    """The query whose journal it is in."""
    seq: int
    """Its number in the journal of the query, from 1."""
    thread_id: str
    """The id of the thread."""
    type: Literal["action-status-change"]
    """What it is."""
    work_id: str | None
    """The unit of work that it tells of."""


class ActionToDo(Record):
    """An approved action. Every attempt at it has the same key."""

    __slots__ = ()
    idempotency_key: str
    """The key that is the same for every attempt."""
    index: int
    """The place of the action in its plan, counted from 0."""
    kind: str
    """The kind of the action."""
    payload: dict[str, Any]
    """The fields of the action."""
    references: list[ReferenceName]
    """The references that it names."""


class ActionView(Record):
    """An action of a plan that executes or did. `idempotencyKey` is the same for every attempt at
    it. Where its outcome is unknown, `error` says what is known; `settledBy` is who last
    settled it, or said `retry`. `artifacts` are the first 20 that its call published,
    superseded and withdrawn ones too; what a call of several actions published for none of them
    in particular is listed with each. If `hasMoreArtifacts` is true, `GET /artifacts` lists
    them all with `includeSuperseded`: those of the action by `planId` and `actionIndex`, those
    of its call by `callId` (its `workId`).
    """

    __slots__ = ()
    artifacts: list[ActionArtifact]
    """What it published: the oldest 20."""
    attempts: int
    """How many attempts there were."""
    error: ActionErrorView | None
    """What is known, if it failed or its outcome is unknown."""
    has_more_artifacts: bool
    """Whether it published more than `artifacts` lists."""
    idempotency_key: str
    """The key that is the same for every attempt."""
    index: int
    """The place of the action in its plan, counted from 0."""
    kind: str
    """The kind of the action."""
    result: ActionResultView | None
    """What its dispatcher returned."""
    revision: int
    """The number of the revision, from 1."""
    settled_by: str | None
    """The principal that settled its outcome."""
    status: Literal["pending", "dispatched", "succeeded", "failed", "skipped", "unknown"]
    """The status."""
    updated_at: str
    """When it last changed."""
    work_id: str | None
    """The id of the work record."""


class AgentTool(Record):
    """A tool that an agent may call. `approval` is the rule in force, `approvalOrigin` where it
    was written; `floor` where the operator's floor made it stricter.
    """

    __slots__ = ()
    approval: ApprovalRule
    """The rule that is in force."""
    approval_origin: Literal[
        "approvalOverrides.tools", "tool", "approvalOverrides.agents", "approvalPolicies", "default", "floor"
    ]
    """Where the rule was written."""
    description: str
    """The description that the model reads."""
    input_schema: dict[str, Any]
    """The JSON Schema of its arguments."""
    name: str
    """What the model calls it."""
    toolkit: str | None
    """The toolkit that it is from."""
    transport: Literal["builtin", "http", "client", "mcp", "python"]
    """Where it runs."""


class AgentToolList(Record):
    """A AgentToolList."""

    __slots__ = ()
    agent: str
    """The name of the agent."""
    tools: list[AgentTool]
    """The tools that the agent may call."""


class AgentUse(Record):
    """The usage of a sub-agent, without a cost if the price is unknown."""

    __slots__ = ()
    agent_name: str
    """The name of the agent."""
    cost_usd: float | None
    """The cost in US dollars; null if no price is known."""
    model: str
    """The id of the model."""
    usage: Usage
    """The tokens that were used."""


class ApprovalComment(Record):
    """A comment of a person on an approval. It is never sent to a model."""

    __slots__ = ()
    approval_id: str
    """The id of the approval."""
    created_at: str
    """When it was created."""
    id: str
    """The id of the comment."""
    principal: str
    """The principal that wrote it."""
    text: str
    """The text."""


class ApprovalCommentEvent(Record):
    """A person commented on an approval. Comments on approvals of queries that are over have no
    event.
    """

    __slots__ = ()
    agent: str | None
    """The agent at work; empty for a plan that a host executes."""
    at: str
    """When it happened."""
    data: ApprovalCommentNotice
    """The comment, without its text."""
    parent_work_id: str | None
    """The work record above; null at the root."""
    query_id: str
    """The query whose journal it is in."""
    seq: int
    """Its number in the journal of the query, from 1."""
    thread_id: str
    """The id of the thread."""
    type: Literal["approval-comment"]
    """What it is."""
    work_id: str | None
    """The unit of work that it tells of."""


class ApprovalCommentNotice(Record):
    """A comment of a person on an approval, without its text: people who may decide read it with
    the approval.
    """

    __slots__ = ()
    approval_id: str
    """The id of the approval."""
    count: int
    """How many comments the approval has with this one."""
    created_at: str
    """When it was created."""
    id: str
    """The id of the comment."""
    principal: str
    """The principal that wrote it."""


class ApprovalDecisionEvent(Record):
    """An approval was decided, expired, or was canceled."""

    __slots__ = ()
    agent: str | None
    """The agent at work; empty for a plan that a host executes."""
    at: str
    """When it happened."""
    data: ApprovalEnd
    """How the approval ended."""
    parent_work_id: str | None
    """The work record above; null at the root."""
    query_id: str
    """The query whose journal it is in."""
    seq: int
    """Its number in the journal of the query, from 1."""
    thread_id: str
    """The id of the thread."""
    type: Literal["approval-decision"]
    """What it is."""
    work_id: str | None
    """The unit of work that it tells of."""


class ApprovalEnd(Record):
    """An approval's end; `decided_by` is None where no principal decided. `args`: those of an
    approver.
    """

    __slots__ = ()
    args: dict[str, Any] | None
    """The arguments of an approver, if they replaced the agent's."""
    decided_by: str | None
    """The principal that decided; null if no principal did."""
    feedback: str | None
    """What the approver said."""
    grant_id: str | None
    """The id of the remembered approval."""
    id: str
    """The id of the approval."""
    outcome: ApprovalOutcome
    """How it ended."""


class ApprovalGlimpses(Record):
    """The main parts of a subject, for lists: `args` of a tool call, and the other fields of a
    plan. Of a large plan, `body` has only the kinds of its actions. Long lists are cut, and the
    numbers say by how much.
    """

    __slots__ = ()
    args: dict[str, Any] | None
    """The arguments of the call. Large values of variables are glimpses."""
    body: dict[str, Any] | None
    """The plan as it is stored."""
    facts: list[Fact] | None
    """The facts that the kind of the plan declares."""
    key: str | None
    """The key of the plan that its agent or host chose."""
    plan_id: str | None
    """The id of the plan."""
    references: list[ReferenceHandle] | None
    """The references that the plan names."""
    references_left_out: int | None
    """How many more references it names."""
    revision: int | None
    """The number of the revision, from 1."""
    spec_name: str | None
    """The name of the plan spec."""
    variables: list[GlimpsedVariable] | None
    """The variables of the call or of the plan."""
    variables_left_out: int | None
    """How many more variables it has."""


class ApprovalInfo(Record):
    """The row of an approval. `digest` is the SHA-256 of its subject, which only its own route
    shows.
    """

    __slots__ = ()
    agent: str | None
    """The name of the agent."""
    decided_at: str | None
    """When it was decided."""
    decided_by: str | None
    """The principal that decided; null if no principal did."""
    decision: Literal["approve", "reject", "revise"] | None
    """What was decided."""
    digest: str
    """The SHA-256 of the subject, in hex. Only the subject itself shows what is approved."""
    expires_at: str
    """When it expires; null if it does not."""
    feedback: str | None
    """What the approver said."""
    glimpses: ApprovalGlimpses | None
    """The main facts of the subject, for lists."""
    grant_id: str | None
    """The id of the remembered approval."""
    id: str
    """The id of the approval."""
    kind: Literal["plan", "tool"]
    """Whether a plan or a tool call waits."""
    label: str | None
    """What people read."""
    original_args: dict[str, Any] | None
    """The arguments that the agent asked for, if an approver replaced them."""
    partial: Any
    """With a revision, what may stay."""
    query_id: str
    """The id of the query."""
    requested_at: str
    """When approval was requested."""
    requested_by: str | None
    """The principal that asked for the query."""
    resource_id: str
    """The id of the tenant."""
    rule: ApprovalRule | None
    """The rule that was in force when approval was requested."""
    runtime_id: str | None
    """The id of the version of the runtime."""
    status: Literal["pending", "approved", "rejected", "revised", "expired", "cancelled"]
    """The status."""
    target: str
    """The id of the plan, or the name of the tool."""
    thread_id: str
    """The id of the thread."""
    votes: list[Vote] | None
    """The decisions that count so far."""
    waiting_actions: int | None
    """How many actions of the plan wait; 0 for a tool call. Default: `0`."""
    waiting_parents: int | None
    """How many agents wait for the agent that asks. Default: `0`."""
    work_id: str
    """The id of the work record."""


class ApprovalOutcome(Record):
    """The outcome of an approval."""

    __slots__ = ()
    outcome: Literal["approve", "reject", "revise", "expired", "cancelled"]
    """The decision, or how it ended without one."""


class ApprovalPage(Record):
    """A ApprovalPage."""

    __slots__ = ()
    items_: list[ApprovalInfo]
    """The items of the page."""
    next_cursor: str | None
    """Send it as `cursor`; null on the last page."""


class ApprovalRequiredEvent(Record):
    """An approval is requested, or requested again: an approver replaced the arguments, and others
    must approve.
    """

    __slots__ = ()
    agent: str | None
    """The agent at work; empty for a plan that a host executes."""
    at: str
    """When it happened."""
    data: ApprovalInfo
    """The approval."""
    parent_work_id: str | None
    """The work record above; null at the root."""
    query_id: str
    """The query whose journal it is in."""
    seq: int
    """Its number in the journal of the query, from 1."""
    thread_id: str
    """The id of the thread."""
    type: Literal["approval-required"]
    """What it is."""
    work_id: str | None
    """The unit of work that it tells of."""


class ApprovalRule(Record):
    """`never`, `always`, or `dynamic` with the id of a predicate as its `value`; expiry in
    milliseconds.
    """

    __slots__ = ()
    approval_expires_in_ms: int | None
    """How long an approval may stay open, in milliseconds; unset, 7 days."""
    approvers: Quorum | None
    """`{"minimum": N, "not_requester": bool}`: how many different principals, and who may not."""
    kind: Literal["never", "always", "dynamic"]
    """What is asked of a person: nothing, every call, or the calls for which a predicate holds."""
    on_expiry: Literal["reject", "fail"] | None
    """What follows then: the call is rejected (`"reject"`, also when unset) or the query fails."""
    rememberable: bool | FreeArguments | None
    """Whether a decision may hold for the thread, for tools: True, or `{"free": [argument]}` with
    the arguments that may differ. Default: `false`.
    """
    value: str | None
    """The id of the predicate, for `dynamic`."""


class ArtifactDecision(Record):
    """A record that withdraws the artifact `artifact_id`, or chooses it over the revisions `over`."""

    __slots__ = ()
    artifact_id: str
    """The id of the artifact."""
    created_at: str
    """When it was created."""
    id: str
    """The id of the decision."""
    kind: Literal["withdraw", "choose"]
    """Whether the artifact was withdrawn or chosen."""
    over: list[str] | None
    """The ids of the revisions that are passed over."""
    principal: str | None
    """The caller: a person or a program."""
    producer: ArtifactProducer
    """The unit of work that published it."""
    reason: str
    """The reason."""


class ArtifactDecisionEvent(Record):
    """An artifact was withdrawn, or chosen over competing revisions, by an agent or by a host. A
    decision of a host has no event once the query that published the artifact is over.
    """

    __slots__ = ()
    agent: str | None
    """The agent at work; empty for a plan that a host executes."""
    at: str
    """When it happened."""
    data: ArtifactDecision
    """The record of the decision."""
    parent_work_id: str | None
    """The work record above; null at the root."""
    query_id: str
    """The query whose journal it is in."""
    seq: int
    """Its number in the journal of the query, from 1."""
    thread_id: str
    """The id of the thread."""
    type: Literal["artifact-decision"]
    """What it is."""
    work_id: str | None
    """The unit of work that it tells of."""


class ArtifactDigest(Record):
    """A ArtifactDigest."""

    __slots__ = ()
    algorithm: Literal["sha256"]
    """Always `sha256`."""
    value: str
    """The digest, in hex."""


class ArtifactInfo(Record):
    """The record of an artifact; the body stays in the workspace."""

    __slots__ = ()
    channel: str
    """The channel, a named line of artifacts."""
    competes_with: list[str] | None
    """The ids of other artifacts that replace the same one."""
    created_at: str
    """When it was created."""
    decisions: list[ArtifactDecision] | None
    """Who withdrew or chose it."""
    digest: ArtifactDigest | None
    """The SHA-256, in hex."""
    first_artifact_id: str | None
    """The id of the first revision."""
    id: str
    """The id of the artifact."""
    is_directory: bool | None
    """Whether the target is a directory."""
    kind: str
    """What it is, such as `report`."""
    media_type: str | None
    """The media type, such as text/markdown."""
    metadata: dict[str, Any] | None
    """JSON of the caller's own; the service does not read it."""
    parent_artifact_ids: list[str] | None
    """The ids of the artifacts that it was made from."""
    path: str
    """The file or directory of the workspace."""
    producer: ArtifactProducer
    """The unit of work that published it."""
    replaces: str | None
    """The id of the artifact that it replaces."""
    revision: int | None
    """The number of the revision, from 1."""
    size_bytes: int | None
    """The size, in bytes."""
    status: Literal["active", "superseded", "withdrawn"] | None
    """The status. Default: `"active"`."""
    summary: str | None
    """What it is about, in a sentence or two."""
    tags: list[str] | None
    """Labels of the publisher's own."""
    target_available: bool | None
    """Default: `true`."""
    target_changed: bool | None
    """Whether the target was changed since; left out for a directory in a list."""
    title: str | None
    """The title that people read."""
    version: int | None
    """The number of the version, from 1. Default: `1`."""


class ArtifactPage(Record):
    """A page of artifacts. It may have fewer than `limit`, or none, although there are more:
    `nextCursor` tells.
    """

    __slots__ = ()
    items_: list[ArtifactInfo]
    """The items of the page."""
    next_cursor: str | None
    """Send it as `cursor`; null on the last page."""


class ArtifactProducer(Record):
    """The unit of work that published, by which call, and the plan action that this call carries
    out.
    """

    __slots__ = ()
    action_index: int | None
    """The place of the action in its plan, counted from 0."""
    agent: str | None
    """The name of the agent."""
    call_id: str | None
    """The id of the tool call that published it."""
    kind: Literal[
        "query", "agent", "model_call", "tool_call", "predicate", "plan_execution", "action", "host"
    ]
    """What kind of work it was."""
    model: str | None
    """The id of the model."""
    parent_work_id: str | None
    """The id of the work record above; null at the root."""
    plan_id: str | None
    """The id of the plan."""
    query_id: str | None
    """The id of the query."""
    thread_id: str
    """The id of the thread."""
    work_id: str
    """The id of the work record."""


class ArtifactPublishedEvent(Record):
    """An artifact was published."""

    __slots__ = ()
    agent: str | None
    """The agent at work; empty for a plan that a host executes."""
    at: str
    """When it happened."""
    data: ArtifactInfo
    """The record of the artifact."""
    parent_work_id: str | None
    """The work record above; null at the root."""
    query_id: str
    """The query whose journal it is in."""
    seq: int
    """Its number in the journal of the query, from 1."""
    thread_id: str
    """The id of the thread."""
    type: Literal["artifact-published"]
    """What it is."""
    work_id: str | None
    """The unit of work that it tells of."""


class AssembledPrompt(Record):
    """The system prompt of an agent as models get it. `cacheKey` is its SHA-256 in hex."""

    __slots__ = ()
    agent: str
    """The name of the agent."""
    cache_key: str
    """The SHA-256 of the prompt, in hex."""
    text: str
    """The text."""


class CallContext(Record):
    """The origin of a call. `toolUseId` is the model's own id of the call, `resourceId` the
    tenant's id.
    """

    __slots__ = ()
    agent: str | None
    """The name of the agent."""
    query_id: str
    """The id of the query."""
    resource_id: str | None
    """The id of the tenant."""
    runtime_id: str
    """The id of the version of the runtime."""
    thread_id: str
    """The id of the thread."""
    tool_use_id: str | None
    """The model's own id of the call."""
    work_id: str | None
    """The id of the work record."""


class CallPage(Record):
    """A CallPage."""

    __slots__ = ()
    items_: list[CallView]
    """The items of the page."""
    next_cursor: str | None
    """Send it as `cursor`; null on the last page."""


class CallView(Record):
    """A call that left the service, without its arguments. `sender` says who sends it to its code.
    `lateResult` is a result that came after the claim had lapsed: it is evidence and changes
    nothing.
    """

    __slots__ = ()
    attempts: int
    """How many attempts there were."""
    claimed_by: str | None
    """The principal that claimed it."""
    created_at: str
    """When it was created."""
    done_at: str | None
    """When it ended."""
    late_result: LateResult | None
    """A result that came too late: it is kept as evidence and changes nothing."""
    name: str
    """The name of the tool or dispatcher."""
    purpose: Literal["tool", "action", "predicate"]
    """What it is a call of."""
    query_id: str
    """The id of the query."""
    sender: Literal["client", "service"]
    """Whether a client claims it or the service sends it."""
    status: Literal["open", "claimed", "done", "unknown", "withdrawn"]
    """The status."""
    work_id: str
    """The id of the work record."""


class ClaimHeld(Record):
    """A ClaimHeld."""

    __slots__ = ()
    claimed_until: str
    """When the claim expires unless a heartbeat extends it."""


class ClaimReleased(Record):
    """A ClaimReleased."""

    __slots__ = ()
    released: Literal[True]
    """Always true."""
    work_id: str
    """The id of the work record."""


class ClaimedCalls(Record):
    """A ClaimedCalls."""

    __slots__ = ()
    calls: list[ToolCall | ActionCall | PredicateCall]
    """The calls that are the claimant's now."""


class ClientTransport(Record):
    """Processes of the user claim the call."""

    __slots__ = ()
    claim_within_ms: int | None
    """How long a call may wait to be claimed, in milliseconds; unset, an hour."""
    kind: Literal["client"]
    """Always `client`."""


class CommentPage(Record):
    """A CommentPage."""

    __slots__ = ()
    items_: list[ApprovalComment]
    """The items of the page."""
    next_cursor: str | None
    """Send it as `cursor`; null on the last page."""


class ContextTrimmedEvent(Record):
    """Oldest turns left the prompt."""

    __slots__ = ()
    agent: str | None
    """The agent at work; empty for a plan that a host executes."""
    at: str
    """When it happened."""
    data: TrimmedTurns
    """What is left out of the prompt."""
    parent_work_id: str | None
    """The work record above; null at the root."""
    query_id: str
    """The query whose journal it is in."""
    seq: int
    """Its number in the journal of the query, from 1."""
    thread_id: str
    """The id of the thread."""
    type: Literal["context-trimmed"]
    """What it is."""
    work_id: str | None
    """The unit of work that it tells of."""


class CostSummary(Record):
    """The usage of the query, summed over its agents."""

    __slots__ = ()
    cost_usd: float | None
    """The cost in US dollars; null if no price is known."""
    model_calls: int | None
    """How many calls of models there were."""
    usage: Usage
    """The tokens that were used."""


class CustomEvent(Record):
    """An event of a tool's own type. Whoever answers the call of the tool sends it."""

    __slots__ = ()
    agent: str | None
    """The agent at work; empty for a plan that a host executes."""
    at: str
    """When it happened."""
    data: Any
    """What the tool sent."""
    event_type: str
    """The tool's own type."""
    parent_work_id: str | None
    """The work record above; null at the root."""
    query_id: str
    """The query whose journal it is in."""
    seq: int
    """Its number in the journal of the query, from 1."""
    thread_id: str
    """The id of the thread."""
    type: Literal["custom"]
    """What it is."""
    work_id: str | None
    """The unit of work that it tells of."""


class DataCostSummaryEvent(Record):
    """Usage of the query so far, sent just before it ends."""

    __slots__ = ()
    agent: str | None
    """The agent at work; empty for a plan that a host executes."""
    at: str
    """When it happened."""
    data: CostSummary
    """What the query used."""
    parent_work_id: str | None
    """The work record above; null at the root."""
    query_id: str
    """The query whose journal it is in."""
    seq: int
    """Its number in the journal of the query, from 1."""
    thread_id: str
    """The id of the thread."""
    type: Literal["data-cost-summary"]
    """What it is."""
    work_id: str | None
    """The unit of work that it tells of."""


class DataLatencySummaryEvent(Record):
    """Where the query's time went, in milliseconds, before its end."""

    __slots__ = ()
    agent: str | None
    """The agent at work; empty for a plan that a host executes."""
    at: str
    """When it happened."""
    data: dict[str, float]
    """Milliseconds by what they were spent on."""
    parent_work_id: str | None
    """The work record above; null at the root."""
    query_id: str
    """The query whose journal it is in."""
    seq: int
    """Its number in the journal of the query, from 1."""
    thread_id: str
    """The id of the thread."""
    type: Literal["data-latency-summary"]
    """What it is."""
    work_id: str | None
    """The unit of work that it tells of."""


class DataToolAgentEvent(Record):
    """The usage of a sub-agent."""

    __slots__ = ()
    agent: str | None
    """The agent at work; empty for a plan that a host executes."""
    at: str
    """When it happened."""
    data: AgentUse
    """What the sub-agent used."""
    parent_work_id: str | None
    """The work record above; null at the root."""
    query_id: str
    """The query whose journal it is in."""
    seq: int
    """Its number in the journal of the query, from 1."""
    thread_id: str
    """The id of the thread."""
    type: Literal["data-tool-agent"]
    """What it is."""
    work_id: str | None
    """The unit of work that it tells of."""


class DecideOne(TypedDict):
    """A DecideOne."""

    args: NotRequired[dict[str, Any] | None]
    """With `approve`, for tools: takes the place of the call's arguments, as it is."""
    decision: Literal["approve", "reject", "revise"]
    """`revise` asks for another plan; of a tool call it is a rejection with feedback."""
    digest: NotRequired[str | None]
    """The SHA-256 of the subject that the approver saw, in hex. Required with `approve`."""
    feedback: NotRequired[str | None]
    """The feedback that the agent receives."""
    id: str
    """The id of the approval."""
    partial: NotRequired[Any]
    """With a revision, what may stay."""
    scope: NotRequired[Literal["thread"] | None]
    """`thread` asks for the approval to be remembered in this thread."""


class DecidedApprovals(Record):
    """The approvals that were decided, in the order of the request."""

    __slots__ = ()
    approvals: list[ApprovalInfo]
    """The approvals, in the order of the request."""


class Digest(Record):
    """A Digest."""

    __slots__ = ()
    algorithm: Literal["sha256"]
    """Always `sha256`."""
    value: str
    """The digest, in hex."""


class EdgeView(Record):
    """The action `to` reads `path`, and waits for the action `from`, which writes it, a part of
    it, or more than it.
    """

    __slots__ = ()
    from_: int
    """The action that writes it."""
    path: str
    """The path that is read."""
    to: int
    """The action that reads it."""


class EntryDeleted(Record):
    """A EntryDeleted."""

    __slots__ = ()
    deleted: Literal[True]
    """Always true."""
    id: str
    """The id of the entry."""


class EntryList(Record):
    """A EntryList."""

    __slots__ = ()
    items_: list[EntryView]
    """The items of the page."""


class EntryPage(Record):
    """A page of entries by id."""

    __slots__ = ()
    items_: list[EntryView]
    """The items of the page."""
    next_cursor: str | None
    """Send it as `cursor`; null on the last page."""


class EntryView(Record):
    """An entry of the catalog: what a profile found and what people wrote, as one. `origin` says
    who contributed.
    """

    __slots__ = ()
    content: dict[str, Any]
    """The text."""
    id: str
    """The id of the entry."""
    kind: Literal[
        "table",
        "column",
        "relationship",
        "enum_value",
        "metric",
        "document",
        "knowledge",
        "data_quality_finding",
    ]
    """What it describes."""
    metadata: dict[str, Any]
    """JSON of the caller's own; the service does not read it."""
    name: str
    """Its short name."""
    origin: Literal["profile", "written", "both"]
    """Whether a profile or a caller wrote it."""
    qualified_name: str
    """The name with everything that it is part of, separated by dots."""
    related: list[str]
    """The ids of entries that belong to it."""
    source: str | None
    """The name of the source of data."""
    tags: list[str]
    """Labels of the publisher's own."""
    updated_at: str
    """When it last changed."""


class ErrorEvent(Record):
    """The query failed or was canceled: the last event of its journal."""

    __slots__ = ()
    agent: str | None
    """The agent at work; empty for a plan that a host executes."""
    at: str
    """When it happened."""
    error: ErrorInfo
    """Why the query failed or who canceled it."""
    parent_work_id: str | None
    """The work record above; null at the root."""
    query_id: str
    """The query whose journal it is in."""
    seq: int
    """Its number in the journal of the query, from 1."""
    thread_id: str
    """The id of the thread."""
    type: Literal["error"]
    """What it is."""
    work_id: str | None
    """The unit of work that it tells of."""


class ErrorInfo(Record):
    """An error: a message for people and models, and a stable code."""

    __slots__ = ()
    code: str
    """A stable code."""
    message: str
    """What is wrong, and what to do."""


class EstimatedKeptOut(Record):
    """The same, with an estimate in tokens and dollars."""

    __slots__ = ()
    estimate: KeptOutEstimate
    """What it may have saved."""
    kept_out_bytes: int
    """How many bytes stayed out of prompts."""
    prompt_bytes: int
    """How many bytes of it models were shown."""
    size_bytes: int
    """The size, in bytes."""
    uses: int
    """How many uses there were."""


class EventPage(Record):
    """Events in their order. `nextCursor` is where to read on, also when the page is empty."""

    __slots__ = ()
    done: bool
    """Nothing can follow: the query is over."""
    events: list[Event]
    """The events, in their order."""
    next_cursor: str
    """Where to read on: send it as `after`. It is there even if the page is empty."""


class Fact(Record):
    """A fact that the kind of a plan declares. The service computes it when the plan reaches its
    gate, from the plan and the values stored for its approval; no model writes it.
    """

    __slots__ = ()
    kind: Literal["decimal", "integer", "text"] | None
    """The type of the value; null for any JSON."""
    label: str
    """What people read in place of the name."""
    name: str
    """The key of the fact in the spec of the plan."""
    status: Literal["known", "depends_on_results", "failed"]
    """Whether it has a value. `depends_on_results` and `failed` are not known before execution."""
    unit: str | None
    """What the value counts, such as `USD`."""
    value: Any
    """A decimal is a string. Null unless the status is `known`."""


class FieldChangeView(Record):
    """A difference at a place. A side that has nothing there is left out."""

    __slots__ = ()
    after: Any
    """The value in the later revision."""
    before: Any
    """The value in the earlier revision."""
    pointer: str
    """Where in the action, or in the plan: a JSON pointer."""


class FilePage(Record):
    """A FilePage."""

    __slots__ = ()
    items_: list[FileView]
    """The items of the page."""
    next_cursor: str | None
    """Send it as `cursor`; null on the last page."""


class FileView(Record):
    """A version of a file of a thread."""

    __slots__ = ()
    at: str
    """When it was written."""
    digest: Digest | None
    """null: this version is the deletion of the file."""
    forked_from: str | None
    """The thread that it was copied from."""
    media_type: str
    """The media type, such as text/markdown."""
    path: str
    """The path."""
    query_id: str | None
    """The id of the query."""
    size_bytes: int
    """The size, in bytes."""
    thread_id: str
    """The id of the thread."""
    version: int
    """The number of the version, from 1."""
    work_id: str | None
    """The call that wrote it, where an agent did."""
    written_by: str
    """The agent, or the principal of the key."""


class FinishEvent(Record):
    """The query succeeded: the last event of its journal."""

    __slots__ = ()
    agent: str | None
    """The agent at work; empty for a plan that a host executes."""
    at: str
    """When it happened."""
    finish_reason: str
    """How the last model turn ended."""
    output: Any
    """The result of the query."""
    parent_work_id: str | None
    """The work record above; null at the root."""
    query_id: str
    """The query whose journal it is in."""
    seq: int
    """Its number in the journal of the query, from 1."""
    thread_id: str
    """The id of the thread."""
    type: Literal["finish"]
    """What it is."""
    usage: Usage
    """The tokens that were used."""
    work_id: str | None
    """The unit of work that it tells of."""


class FoundEntries(Record):
    """A FoundEntries."""

    __slots__ = ()
    items_: list[FoundEntry]
    """What was found, the best match first."""


class FoundEntry(Record):
    """A candidate of a search. `matched` are the words of the search that it matched, by meaning
    or by spelling.
    """

    __slots__ = ()
    description: str | None
    """What it is."""
    id: str
    """The id of the entry."""
    kind: Literal[
        "table",
        "column",
        "relationship",
        "enum_value",
        "metric",
        "document",
        "knowledge",
        "data_quality_finding",
    ]
    """What it describes."""
    matched: list[str]
    """What of the entry matched."""
    name: str
    """Its short name."""
    row_estimate: int | None
    """About how many rows the table has."""
    score: float
    """How well it matches; higher is better."""
    source: str | None
    """The name of the source of data."""
    table: str | None
    """The table that it belongs to."""
    type: str | None
    """The type of the column."""


class FreeArguments(Record):
    """A remembered approval holds whatever these arguments of the tool are."""

    __slots__ = ()
    free: list[str]
    """The names of the arguments that may have any value."""


class GlimpsedVariable(Record):
    """A variable of a call or of a plan, with a glimpse of its value. In a plan, `resultOf` has
    the actions whose result the value will be, if it is not known yet.
    """

    __slots__ = ()
    digest: str | None
    """The SHA-256, in hex."""
    glimpse: Any
    """A summary of the value, up to 4 KiB."""
    pointer: str | None
    """Where the value is in the arguments of the call: a JSON pointer."""
    result_of: list[int] | None
    """The actions whose result it will be."""
    size_bytes: int | None
    """The size, in bytes."""
    type: str | None
    """The type of the value."""
    variable: str
    """The variable, such as `†state.total`."""


class GrantPage(Record):
    """A GrantPage."""

    __slots__ = ()
    items_: list[GrantView]
    """The items of the page."""
    next_cursor: str | None
    """Send it as `cursor`; null on the last page."""


class GrantView(Record):
    """A remembered approval: calls of `tool` in this definition, by this agent in this thread,
    with these `args` and whatever values of the `free` ones, need no person. `approvalId` is
    the decision that made it; approvals that it decided name it as `grantId`. `active`: neither
    revoked nor past its time.
    """

    __slots__ = ()
    active: bool
    """Whether it holds: it is neither revoked nor past its time."""
    agent: str
    """The name of the agent."""
    approval_id: str
    """The id of the decision that made it."""
    args: dict[str, Any]
    """The arguments that it holds for."""
    created_at: str
    """When it was created."""
    definition_digest: str
    """The SHA-256 of the tool's definition, in hex."""
    expires_at: str
    """When it expires; null if it does not."""
    free: list[str]
    """The arguments that may have any value."""
    granted_by: str
    """The principal that asked for it to be remembered."""
    id: str
    """The id of the grant."""
    revoked_at: str | None
    """When it was revoked; null if it was not."""
    revoked_by: str | None
    """The principal that revoked it."""
    thread_id: str
    """The id of the thread."""
    tool: str
    """The name of the tool."""


class GraphView(Record):
    """A plan at its current revision as a graph. Without variables it has no edges. `edgesLeftOut`
    counts those beyond the first 10,000.
    """

    __slots__ = ()
    edges: list[EdgeView]
    """Which action waits for which."""
    edges_left_out: int
    """How many edges were left out, beyond the first 10,000."""
    nodes: list[NodeView]
    """The actions."""
    plan_id: str
    """The id of the plan."""
    revision: int
    """The number of the revision, from 1."""
    status: Literal["draft", "approved", "executing", "executed", "failed"]
    """The status."""


class Health(Record):
    """A Health."""

    __slots__ = ()
    status: Literal["ok"]
    """Always `ok`."""


class HttpTransport(Record):
    """The service POSTs the call, signed, to `url`."""

    __slots__ = ()
    headers: dict[str, str | SecretRef | None] | None
    """What is sent with it: texts, or `{"secret": name}`."""
    kind: Literal["http"]
    """Always `http`."""
    url: str
    """Where."""


class KeptOut(Record):
    """Bytes of references, summed over creations, resolves and dispatches, or of artifacts, summed
    over the calls that received their records. Models read `promptBytes` of `sizeBytes`;
    `keptOutBytes` stayed out of prompts.
    """

    __slots__ = ()
    kept_out_bytes: int
    """How many bytes stayed out of prompts."""
    prompt_bytes: int
    """How many bytes of it models were shown."""
    size_bytes: int
    """The size, in bytes."""
    uses: int
    """How many uses there were."""


class KeptOutEstimate(Record):
    """An estimate of the cost of `keptOutBytes` in prompts, as if each byte had been sent once. A
    byte counts as much as the average byte of the same query's prompts, in tokens and in
    dollars. `tokensFromBytes` and `costFromBytes` are the bytes that the estimate covers; all
    others belong to queries without a measured or priced call.
    """

    __slots__ = ()
    cost_from_bytes: int
    """How many bytes the cost is estimated from."""
    cost_usd: float | None
    """The cost in US dollars; null if no price is known."""
    tokens: int | None
    """How many tokens."""
    tokens_from_bytes: int
    """How many bytes the tokens are estimated from."""


class KeyPage(Record):
    """A KeyPage."""

    __slots__ = ()
    items_: list[KeyView]
    """The items of the page."""
    next_cursor: str | None
    """Send it as `cursor`; null on the last page."""


class KeyRevoked(Record):
    """A KeyRevoked."""

    __slots__ = ()
    id: str
    """The id of the key."""
    revoked: Literal[True]
    """Always true."""


class KeyView(Record):
    """An API key, without its text. `tools` null may serve any."""

    __slots__ = ()
    created_at: str
    """When it was created."""
    created_by: str
    """The principal that created it."""
    expires_at: str | None
    """When it expires; null if it does not."""
    id: str
    """The id of the key."""
    principal: str
    """The caller: a person or a program."""
    revoked_at: str | None
    """When it was revoked; null if it was not."""
    scopes: list[
        Literal[
            "read",
            "runtimes:write",
            "queries:write",
            "plans:write",
            "plans:settle",
            "approvals:decide",
            "data:write",
            "sources:admin",
            "tools:serve",
            "actions:serve",
            "act-as",
            "admin",
        ]
    ]
    """What the key may do."""
    tools: list[str] | None
    """The tools that the key may serve; null is any."""


class LateResult(Record):
    """A result that came after the claim had lapsed: `output` or `error`, or a `note` if it is
    larger than 4 KiB.
    """

    __slots__ = ()
    error: str | None
    """Why it failed."""
    note: str | None
    """How large the result is, in place of it."""
    output: Any
    """What the tool or dispatcher returned."""


class Limits(TypedDict):
    """The limits of the query; the runtime's limits apply to omitted ones."""

    maxCostUsd: NotRequired[float | None]
    """The most that the query may cost, in US dollars."""
    maxDurationMs: NotRequired[int | None]
    """How long it may be at work, in milliseconds; waiting does not count."""
    maxTokens: NotRequired[int | None]
    """How many tokens it may use, in and out."""
    maxTurns: NotRequired[int | None]
    """How many model turns it may take."""


class LimitsBody(TypedDict):
    """The limits of a statement; omitted limits have their defaults."""

    bytes: NotRequired[int | None]
    """How many bytes a statement may return."""
    concurrentStatements: NotRequired[int | None]
    """How many statements run at the same time."""
    rows: NotRequired[int | None]
    """How many rows a statement may return."""
    timeoutMs: NotRequired[int | None]
    """How long a statement may take, in milliseconds."""


class LineageEdge(Record):
    """An edge to a step: `via` is the artifact one step nearer. The kind says in which field the
    newer of the two names the older one: `parent` is `parentArtifactIds`, `replaces` is
    `replaces`.
    """

    __slots__ = ()
    kind: Literal["parent", "replaces"]
    """How the two are related."""
    via: str
    """What relates them."""


class LineageStep(Record):
    """An artifact, its distance in steps, and at most ten edges that lead to it."""

    __slots__ = ()
    artifact: ArtifactInfo
    """The record."""
    depth: int
    """How many steps away it is."""
    edges: list[LineageEdge]
    """How it is related to the step before."""


class LineageView(Record):
    """The ancestors and descendants of an artifact, along `parentArtifactIds` and `replaces`,
    nearest first.
    """

    __slots__ = ()
    ancestors: list[LineageStep]
    """What it came from, the nearest first."""
    artifact: ArtifactInfo
    """The record."""
    descendants: list[LineageStep]
    """What came from it, the nearest first."""


class ListedReference(Record):
    """`workId` is the work record that made it, where one did."""

    __slots__ = ()
    created_at: str
    """When it was created."""
    expires_at: str | None
    """When it expires; null if it does not."""
    glimpse: Any
    """A summary of the value, up to 4 KiB."""
    id: str
    """The id of the reference."""
    kind: str
    """Its kind."""
    size_bytes: int
    """The size, in bytes."""
    work_id: str | None
    """The id of the work record."""


class ListedRevision(Record):
    """A revision, by which work record it was stored, and what was decided about it. Its `status`
    is `rejected` or `revised` if a person decided so, `replaced` if a later revision was
    stored, else that of the plan.
    """

    __slots__ = ()
    decision: Literal["approve", "reject", "revise"] | None
    """What was decided."""
    digest: str
    """The SHA-256, in hex."""
    facts: list[Fact] | None
    """The facts that the kind of the plan declares, as the gate of this revision last opened; null
    before.
    """
    feedback: str | None
    """What the approver said."""
    revision: int
    """The number of the revision, from 1."""
    status: Literal["draft", "approved", "executing", "executed", "failed", "rejected", "revised", "replaced"]
    """The status."""
    stored_at: str
    """When it was stored."""
    stored_by: str
    """The id of the work record that stored it."""


class McpTools(Record):
    """Tools have the names of the server if a spec accepts them; otherwise `transport.tool` has
    the server's name.
    """

    __slots__ = ()
    tools: list[ToolSpec]
    """The tools, ready for a spec."""


class McpTransport(Record):
    """A remote MCP server over Streamable HTTP."""

    __slots__ = ()
    definition_digest: str | None
    """The SHA-256 of the definition that the server gave at registration, in hex."""
    headers: dict[str, str | SecretRef | None] | None
    """What is sent with it: texts, or `{"secret": name}`."""
    kind: Literal["mcp"]
    """Always `mcp`."""
    tool: str | None
    """The name of the tool at the server, if it differs."""
    url: str
    """The address of the server."""


class MemoryDeleted(Record):
    """A MemoryDeleted."""

    __slots__ = ()
    deleted: bool
    """Always true."""
    resource: str
    """Whose memory it is."""
    runtime: str
    """The name of the runtime; its newest version is meant."""


class MemoryView(Record):
    """The memory of a runtime's name, as it is or as it was. `write` is the number of its last
    write, 0 before any.
    """

    __slots__ = ()
    document: dict[str, Any]
    """The memory."""
    resource: str
    """Whose memory it is."""
    runtime: str
    """The name of the runtime; its newest version is meant."""
    write: int
    """The number of its last write, 0 before any."""


class MessagePage(Record):
    """Messages of a thread, oldest first. The next page has those of earlier runs."""

    __slots__ = ()
    items_: list[MessageView]
    """The items of the page."""
    next_cursor: str | None
    """Send it as `cursor` for the messages before these; null if there are none."""


class MessageView(Record):
    """A message to an agent, or from it."""

    __slots__ = ()
    agent: str
    """The name of the agent."""
    blocks: list[TextBlock | ThinkingBlock | ToolUseBlock | ToolResultBlock]
    """The content of the message."""
    role: Literal["user", "assistant"]
    """Who wrote it: `user` for a message to the agent."""


class NamedEntry(TypedDict):
    """A NamedEntry."""

    content: NotRequired[dict[str, Any] | None]
    """The text."""
    id: str
    """The id of the entry."""
    kind: Literal[
        "table",
        "column",
        "relationship",
        "enum_value",
        "metric",
        "document",
        "knowledge",
        "data_quality_finding",
    ]
    """What it describes."""
    metadata: NotRequired[dict[str, Any] | None]
    """JSON of the caller's own; the service does not read it."""
    name: NotRequired[str | None]
    """Its short name."""
    qualifiedName: NotRequired[str | None]
    """The name with everything that it is part of, separated by dots."""
    related: NotRequired[list[str] | None]
    """The ids of entries that belong to it."""
    source: NotRequired[str | None]
    """The name of the source of data."""
    tags: NotRequired[list[str] | None]
    """Labels of the publisher's own."""


class NewKey(Record):
    """A key just made. `key` is its text, shown this once."""

    __slots__ = ()
    created_at: str
    """When it was created."""
    created_by: str
    """The principal that created it."""
    expires_at: str | None
    """When it expires; null if it does not."""
    id: str
    """The id of the key."""
    key: str
    """The text of the key, shown once."""
    principal: str
    """The caller: a person or a program."""
    revoked_at: str | None
    """When it was revoked; null if it was not."""
    scopes: list[
        Literal[
            "read",
            "runtimes:write",
            "queries:write",
            "plans:write",
            "plans:settle",
            "approvals:decide",
            "data:write",
            "sources:admin",
            "tools:serve",
            "actions:serve",
            "act-as",
            "admin",
        ]
    ]
    """What the key may do."""
    tools: list[str] | None
    """The tools that the key may serve; null is any."""


class NodeView(Record):
    """An action. It has no `status` before its plan is approved; `attempts` says how often it was
    sent.
    """

    __slots__ = ()
    attempts: int
    """How many attempts there were."""
    index: int
    """The place of the action in its plan, counted from 0."""
    kind: str
    """The kind of the action."""
    reads: list[str]
    """The paths that it reads."""
    status: Literal["pending", "dispatched", "succeeded", "failed", "skipped", "unknown"] | None
    """Its status; null before the plan was approved."""
    writes: list[str]
    """The paths that it writes."""


class PendingCountsView(Record):
    """The pending approvals of the tenant: up to 10,000 of them, the oldest first, in up to 100
    groups, the largest first.
    """

    __slots__ = ()
    can_decide: int
    """How many of them you can decide or vote on (`canDecide` in `GET /approvals`)."""
    groups: list[PendingGroupView]
    """The largest groups."""
    is_complete: bool
    """False if more are pending than were counted."""
    next_expires_at: str | None
    """When the first of them expires; null if none is pending."""
    pending: int
    """How many approvals are pending."""


class PendingGroupView(Record):
    """The pending approvals of one kind, agent and runtime."""

    __slots__ = ()
    agent: str
    """The name of the agent."""
    kind: Literal["plan", "tool"]
    """Whether plans or tool calls wait."""
    pending: int
    """How many approvals are pending."""
    runtime: str
    """The name of the runtime."""


class PlanChange(Record):
    """A transition of a plan. `from` is None when it is first stored; `label` is what people read."""

    __slots__ = ()
    from_: Literal["draft", "approved", "executing", "executed", "failed", "pending_approval"] | None
    """The status before; null when it is first stored."""
    label: str
    """What people read."""
    plan_id: str
    """The id of the plan."""
    revision: int
    """The number of the revision, from 1."""
    to: Literal["draft", "approved", "executing", "executed", "failed", "pending_approval"]
    """The status after."""


class PlanPage(Record):
    """A PlanPage."""

    __slots__ = ()
    items_: list[PlanView]
    """The items of the page."""
    next_cursor: str | None
    """Send it as `cursor`; null on the last page."""


class PlanResult(Record):
    """What executing a plan led to. If its query ended first, it has a `reason` and no actions."""

    __slots__ = ()
    actions: list[PlanResultAction] | None
    """Its actions."""
    entities_affected: int | None
    """How many things the actions changed."""
    label: str
    """What people read."""
    reason: str | None
    """Why nothing was executed to its end."""
    status: Literal["executed", "failed"]
    """Whether every action took effect, or its failure was handled."""
    summary: str | None
    """What was done, in words."""


class PlanResultAction(Record):
    """An action in the result of its plan."""

    __slots__ = ()
    error: ActionErrorView | None
    """Why it failed, in short."""
    index: int
    """The place of the action in its plan, counted from 0."""
    kind: str
    """The kind of the action."""
    status: Literal["pending", "dispatched", "succeeded", "failed", "skipped", "unknown"]
    """The status."""


class PlanStatusChangeEvent(Record):
    """A plan went from one status to the next; `pending_approval` is shown while an approval is
    pending.
    """

    __slots__ = ()
    agent: str | None
    """The agent at work; empty for a plan that a host executes."""
    at: str
    """When it happened."""
    data: PlanChange
    """The transition."""
    parent_work_id: str | None
    """The work record above; null at the root."""
    query_id: str
    """The query whose journal it is in."""
    seq: int
    """Its number in the journal of the query, from 1."""
    thread_id: str
    """The id of the thread."""
    type: Literal["plan-status-change"]
    """What it is."""
    work_id: str | None
    """The unit of work that it tells of."""


class PlanSubject(Record):
    """The subject of an approval of a plan: its body, its inputs, and everything that it names.
    `planDigest` is the SHA-256 of the plan alone; `runtimeVersion` and `dispatchers` are
    digests of the definitions that carry it out, by kind of action.
    """

    __slots__ = ()
    body: dict[str, Any]
    """The plan as it is stored."""
    dispatchers: dict[str, str]
    """The digests of the dispatchers that carry it out, by kind of action."""
    facts: list[Fact]
    """The facts that the kind of the plan declares, computed by the service."""
    inputs: dict[str, Any] | None
    """The inputs of the query, which variables read."""
    kind: Literal["plan"]
    """Always `plan`."""
    plan_digest: str
    """The SHA-256 of the plan alone, in hex."""
    plan_id: str
    """The id of the plan."""
    references: list[SubjectReference]
    """The references that it names, with their digests."""
    replay: dict[str, Literal["safe", "never"]]
    """Whether actions of a kind may be sent again if a crash left their outcome open: `safe` or
    `never`.
    """
    revision: int
    """The number of the revision, from 1."""
    runtime_version: str
    """The digest of the runtime's spec."""
    spec_name: str
    """The name of the plan spec."""
    variables: list[SubjectVariable] | None
    """What its variables stand for, if it has any."""


class PlanView(Record):
    """A plan at its current revision. `body` has its actions as `{kind, payload, references}`,
    and, where the result of one goes to a path, `_outputPath` and `_outputMethod`; with
    `variables`, strings in it that begin with a dagger are variables. `digest` is the SHA-256
    of its stored bytes; `decision` is what was said of a revision that was not approved;
    `result` what executing it answered. `label` is what people read in place of the status: the
    spec's display alias, else the status. `revisionStatus` is the status of the current
    revision.
    """

    __slots__ = ()
    body: dict[str, Any]
    """The plan as it is stored."""
    copied_from: str | None
    """The id of the plan that it is a copy of."""
    created_at: str
    """When it was created."""
    decision: Literal["approve", "reject", "revise"] | None
    """What was decided."""
    digest: str
    """The SHA-256, in hex."""
    facts: list[Fact] | None
    """The facts that its kind declares, as the gate of this revision last opened; null before."""
    feedback: str | None
    """What the approver said."""
    id: str
    """The id of the plan."""
    key: str | None
    """The caller's own key of it."""
    label: str
    """What people read."""
    partial: Any
    """With a revision, what may stay."""
    query_id: str | None
    """The id of the query."""
    result: PlanResult | None
    """What executing it returned."""
    revision: int
    """The number of the revision, from 1."""
    revision_status: Literal[
        "draft", "approved", "executing", "executed", "failed", "rejected", "revised", "replaced"
    ]
    """Whether the revision was rejected, or is to be revised."""
    runtime_id: str
    """The id of the version of the runtime."""
    spec_name: str
    """The name of the plan spec."""
    status: Literal["draft", "approved", "executing", "executed", "failed"]
    """The status."""
    thread_id: str
    """The id of the thread."""
    updated_at: str
    """When it last changed."""
    variables: bool
    """Whether strings that begin with a dagger are variables."""


class PredicateCall(Record):
    """A question to a client process: whether a tool call with these `args` needs an approval. Its
    result is `true` or `false`.
    """

    __slots__ = ()
    args: dict[str, Any]
    """The arguments of the call."""
    claim_token: str
    """The token of the claim on the call."""
    claimed_until: str
    """When the claim expires unless a heartbeat extends it."""
    claims: int
    """How often it was claimed, this time included."""
    context: CallContext
    """Where in which query the call was made."""
    definition_digest: str
    """The SHA-256 of the tool's definition, in hex."""
    name: str
    """The name of the tool or dispatcher."""
    predicate: PredicateContext
    """What a predicate may look at beside the arguments."""
    purpose: Literal["predicate"]
    """Always `predicate`."""
    query_id: str
    """The id of the query."""
    timeout_ms: int
    """How long it may take, in milliseconds."""
    work_id: str
    """The id of the work record."""


class PredicateContext(Record):
    """What a predicate can use besides the arguments."""

    __slots__ = ()
    agent: str
    """The name of the agent."""
    query_id: str
    """The id of the query."""
    resource_id: str
    """The id of the tenant."""
    spent_usd: float
    """What the query has cost so far, in US dollars."""
    thread_id: str
    """The id of the thread."""
    tool: str
    """The name of the tool."""


class ProcessList(Record):
    """A ProcessList."""

    __slots__ = ()
    items_: list[ProcessView]
    """The items of the page."""


class ProcessView(Record):
    """A process of the service: an API server, a worker, or a child of one."""

    __slots__ = ()
    end_reason: Literal["stopped", "died", "presumed_dead"] | None
    """How it ended; null while it lives."""
    ended_at: str | None
    """When it ended; null while it has not."""
    heartbeat_at: str
    """When it last reported."""
    host: str
    """The name of its machine."""
    id: str
    """The id of the process."""
    parent_id: str | None
    """The process that started it, for a child process."""
    pid: int
    """Its process id there."""
    running_queries: int
    """How many queries it runs."""
    silent_s: float
    """Seconds since then, by the clock of the database."""
    started_at: str
    """When it began; null before."""


class ProfileAccepted(Record):
    """The query that profiles the source. Its events tell how far it is."""

    __slots__ = ()
    id: str
    """The id of the query that profiles the source."""
    links: dict[str, str]
    """Paths of the query's own routes."""
    status: Literal["queued", "running"]
    """The status."""
    thread_id: str
    """The id of the thread."""


class ProfileCounts(Record):
    """Counts of the last complete profile."""

    __slots__ = ()
    columns: int
    """How many columns."""
    findings: int
    """How many findings."""
    relationships: int
    """How many relationships."""
    tables: int
    """How many tables."""


class ProfileState(Record):
    """The newest profile: the status of its query, and what the last complete one found."""

    __slots__ = ()
    found: ProfileCounts | None
    """How much the profile found."""
    profiled_at: str | None
    """When the profile ended."""
    query_id: str | None
    """The id of the query."""
    status: Literal["none", "queued", "running", "waiting", "succeeded", "failed", "cancelled"]
    """The status."""


class ProgressRecorded(Record):
    """A ProgressRecorded."""

    __slots__ = ()
    recorded: Literal[True]
    """Always true."""


class PythonTransport(Record):
    """An entry point that the operator installed beside the service."""

    __slots__ = ()
    entry_point: str
    """Its name."""
    kind: Literal["python"]
    """Always `python`."""


class QueryLinks(Record):
    """Paths of the query's own routes."""

    __slots__ = ()
    cancel: str
    """Where to cancel it."""
    events: str
    """Its events, in pages."""
    self: str
    """The query."""
    stream: str
    """Its events, as a stream."""
    work: str
    """Its work records."""


class QueryPage(Record):
    """A QueryPage."""

    __slots__ = ()
    items_: list[QuerySummary]
    """The items of the page."""
    next_cursor: str | None
    """Send it as `cursor`; null on the last page."""


class QueryStatusEvent(Record):
    """The query's status changed; `from` is None for its first. `limit`: which one, for the reason
    `limit_reached`.
    """

    __slots__ = ()
    agent: str | None
    """The agent at work; empty for a plan that a host executes."""
    at: str
    """When it happened."""
    from_: Literal["queued", "running", "waiting", "succeeded", "failed", "cancelled"] | None
    """The status before; null at first."""
    limit: Literal["maxTurns", "maxTokens", "maxCostUsd", "maxDurationMs"] | None
    """The limit that was reached."""
    parent_work_id: str | None
    """The work record above; null at the root."""
    query_id: str
    """The query whose journal it is in."""
    reason: str | None
    """Why it waits, or how it ended."""
    seq: int
    """Its number in the journal of the query, from 1."""
    thread_id: str
    """The id of the thread."""
    to: Literal["queued", "running", "waiting", "succeeded", "failed", "cancelled"]
    """The status after."""
    type: Literal["query-status"]
    """What it is."""
    work_id: str | None
    """The unit of work that it tells of."""


class QuerySummary(Record):
    """A query as a list shows it. `reason` says why it waits or how it ended; `planId` is set for
    the kind `plan`.
    """

    __slots__ = ()
    agent: str
    """The name of the agent."""
    cost_usd: float | None
    """The cost in US dollars; null if no price is known."""
    created_at: str
    """When it was created."""
    ended_at: str | None
    """When it ended; null while it has not."""
    error: ErrorInfo | None
    """Why it failed."""
    id: str
    """The id of the query."""
    inputs: dict[str, Any] | None
    """The inputs of the query, which variables read."""
    kind: Literal["agent", "plan", "profile"]
    """Whether an agent works, or a plan is carried out without one."""
    links: QueryLinks
    """Paths of the query's own routes."""
    metadata: dict[str, Any] | None
    """JSON of the caller's own; the service does not read it."""
    output: Any
    """The result; null before it succeeded."""
    plan_id: str | None
    """The id of the plan that it carries out."""
    principal: str
    """The caller: a person or a program."""
    prompt: str
    """The prompt."""
    reason: str | None
    """Why it waits, or how it ended."""
    runtime_id: str
    """The id of the version of the runtime."""
    started_at: str | None
    """When it began; null before."""
    status: Literal["queued", "running", "waiting", "succeeded", "failed", "cancelled"]
    """The status."""
    thread_id: str
    """The id of the thread."""
    usage: Usage
    """The tokens that were used."""


class QueryView(Record):
    """A query with the ids of the approvals that it waits for."""

    __slots__ = ()
    agent: str
    """The name of the agent."""
    cost_usd: float | None
    """The cost in US dollars; null if no price is known."""
    created_at: str
    """When it was created."""
    ended_at: str | None
    """When it ended; null while it has not."""
    error: ErrorInfo | None
    """Why it failed."""
    id: str
    """The id of the query."""
    inputs: dict[str, Any] | None
    """The inputs of the query, which variables read."""
    kind: Literal["agent", "plan", "profile"]
    """Whether an agent works, or a plan is carried out without one."""
    links: QueryLinks
    """Paths of the query's own routes."""
    metadata: dict[str, Any] | None
    """JSON of the caller's own; the service does not read it."""
    open_approvals: list[str]
    """The ids of the approvals that it waits for."""
    output: Any
    """The result; null before it succeeded."""
    plan_id: str | None
    """The id of the plan that it carries out."""
    principal: str
    """The caller: a person or a program."""
    prompt: str
    """The prompt."""
    reason: str | None
    """Why it waits, or how it ended."""
    runtime_id: str
    """The id of the version of the runtime."""
    started_at: str | None
    """When it began; null before."""
    status: Literal["queued", "running", "waiting", "succeeded", "failed", "cancelled"]
    """The status."""
    thread_id: str
    """The id of the thread."""
    usage: Usage
    """The tokens that were used."""


class Quorum(Record):
    """The required approvers: `minimum` different principals; `not_requester` excludes the
    requester.
    """

    __slots__ = ()
    minimum: int | None
    """How many. Default: `1`."""
    not_requester: bool | None
    """Whether none of them may be who asked for the query. Default: `false`."""


class Readiness(Record):
    """`running`: the number of queries that this process runs. `reads` and `writes`: whether the
    database takes them. `recoveryNeeded`: whether work is stopped since a promotion, until the
    operator runs `plangate recover`.
    """

    __slots__ = ()
    reads: bool
    """Whether the database answers reads."""
    recovery_needed: bool
    """Whether work is stopped until the operator runs `plangate recover`."""
    running: int
    """How many queries this process runs."""
    status: Literal["ready"]
    """Always `ready`."""
    writes: bool
    """Whether the database takes writes."""


class ReasoningEvent(Record):
    """A piece of the model's reasoning; `workId` is the model call's."""

    __slots__ = ()
    agent: str | None
    """The agent at work; empty for a plan that a host executes."""
    at: str
    """When it happened."""
    parent_work_id: str | None
    """The work record above; null at the root."""
    query_id: str
    """The query whose journal it is in."""
    seq: int
    """Its number in the journal of the query, from 1."""
    text: str
    """The text."""
    thread_id: str
    """The id of the thread."""
    turn: int
    """The number of the model turn, from 1."""
    type: Literal["reasoning"]
    """What it is."""
    work_id: str | None
    """The unit of work that it tells of."""


class ReferenceCreatedEvent(Record):
    """A reference was stored."""

    __slots__ = ()
    agent: str | None
    """The agent at work; empty for a plan that a host executes."""
    at: str
    """When it happened."""
    data: ReferenceHandle
    """The handle of the reference."""
    parent_work_id: str | None
    """The work record above; null at the root."""
    query_id: str
    """The query whose journal it is in."""
    seq: int
    """Its number in the journal of the query, from 1."""
    thread_id: str
    """The id of the thread."""
    type: Literal["reference-created"]
    """What it is."""
    work_id: str | None
    """The unit of work that it tells of."""


class ReferenceDeleted(Record):
    """A ReferenceDeleted."""

    __slots__ = ()
    deleted: Literal[True]
    """Always true."""
    id: str
    """The id of the reference."""
    kind: str
    """Its kind."""


class ReferenceHandle(Record):
    """A stored reference: handle, glimpse and size in bytes, never the value."""

    __slots__ = ()
    glimpse: Any
    """A summary of the value, up to 4 KiB."""
    id: str
    """The id of the reference."""
    kind: str
    """Its kind."""
    size_bytes: int
    """The size, in bytes."""


class ReferenceName(Record):
    """A ReferenceName."""

    __slots__ = ()
    id: str
    """The id of the reference."""
    kind: str
    """Its kind."""


class ReferencePage(Record):
    """A ReferencePage."""

    __slots__ = ()
    items_: list[ListedReference]
    """The items of the page."""
    next_cursor: str | None
    """Send it as `cursor`; null on the last page."""


class ReferenceUse(Record):
    """A use of a reference by a unit of work. A model read `promptBytes` of its `sizeBytes`; the
    rest stayed out of prompts.
    """

    __slots__ = ()
    id: str
    """The id of the reference."""
    kind: str
    """Its kind."""
    prompt_bytes: int
    """How many bytes of it models were shown."""
    size_bytes: int
    """The size, in bytes."""
    use: Literal["create", "resolve", "hydrate"]
    """What was done with it."""


class ReferenceView(Record):
    """The handle `{kind, id}` of a value, and its glimpse; never the value."""

    __slots__ = ()
    created_at: str
    """When it was created."""
    expires_at: str | None
    """When it expires; null if it does not."""
    glimpse: Any
    """A summary of the value, up to 4 KiB."""
    id: str
    """The id of the reference."""
    kind: str
    """Its kind."""
    size_bytes: int
    """The size, in bytes."""


class RegisteredRuntime(Record):
    """A registered version. `signing_secret` is present only in the response that created it."""

    __slots__ = ()
    created_at: str
    """When it was created."""
    digest: str
    """The SHA-256, in hex."""
    id: str
    """The id of the version."""
    name: str
    """The name of the runtime."""
    retired_at: str | None
    """When it was retired; null if it was not."""
    signing_secret: str | None
    """What receivers verify calls with. Shown once."""
    spec: dict[str, Any]
    """The spec as it was assembled."""
    version: int
    """The number of the version, from 1."""


class ResultPosted(Record):
    """`adopted` is false for a late result: it is kept as evidence and changes nothing."""

    __slots__ = ()
    adopted: bool
    """Whether it counts; a late result is kept as evidence and changes nothing."""
    work_id: str
    """The id of the work record."""


class RevisionChanges(Record):
    """What changed between two revisions of a plan."""

    __slots__ = ()
    actions: list[ActionChangeView]
    """The actions of the later revision in its order, with those that were removed."""
    context: list[FieldChangeView]
    """The differences outside of the actions."""
    from_: int
    """The earlier revision."""
    plan_id: str
    """The id of the plan."""
    to: int
    """The later revision."""


class RevisionPage(Record):
    """A RevisionPage."""

    __slots__ = ()
    items_: list[ListedRevision]
    """The items of the page."""
    next_cursor: str | None
    """Send it as `cursor`; null on the last page."""


class RevisionView(Record):
    """A revision as it was stored."""

    __slots__ = ()
    body: dict[str, Any]
    """The plan as it was stored."""
    decision: Literal["approve", "reject", "revise"] | None
    """What was decided."""
    digest: str
    """The SHA-256, in hex."""
    facts: list[Fact] | None
    """The facts that the kind of the plan declares, as the gate of this revision last opened; null
    before.
    """
    feedback: str | None
    """What the approver said."""
    partial: Any
    """With a revision, what may stay."""
    revision: int
    """The number of the revision, from 1."""
    status: Literal["draft", "approved", "executing", "executed", "failed", "rejected", "revised", "replaced"]
    """The status."""
    stored_at: str
    """When it was stored."""
    stored_by: str
    """The id of the work record that stored it."""


class Rollup(Record):
    """The usage of a record and everything below it, each record once."""

    __slots__ = ()
    cost_usd: float | None
    """The cost in US dollars; null if no price is known."""
    model_calls: int
    """How many calls of models there were."""
    references: KeptOut
    """What references kept out of prompts."""
    unpriced_calls: int
    """How many calls used tokens whose price is not known."""
    usage: Usage
    """The tokens that were used."""


class RuntimePage(Record):
    """A RuntimePage."""

    __slots__ = ()
    items_: list[RuntimeSummary]
    """The items of the page."""
    next_cursor: str | None
    """Send it as `cursor`; null on the last page."""


class RuntimeSummary(Record):
    """A version of a line `name`. `digest` is the SHA-256 of the spec's canonical bytes in hex."""

    __slots__ = ()
    created_at: str
    """When it was created."""
    digest: str
    """The SHA-256, in hex."""
    id: str
    """The id of the version."""
    name: str
    """The name of the runtime."""
    retired_at: str | None
    """When it was retired; null if it was not."""
    version: int
    """The number of the version, from 1."""


class RuntimeView(Record):
    """A version with its spec as it was assembled."""

    __slots__ = ()
    created_at: str
    """When it was created."""
    digest: str
    """The SHA-256, in hex."""
    id: str
    """The id of the version."""
    name: str
    """The name of the runtime."""
    retired_at: str | None
    """When it was retired; null if it was not."""
    spec: dict[str, Any]
    """The spec as it was assembled."""
    version: int
    """The number of the version, from 1."""


class SecretDeleted(Record):
    """A SecretDeleted."""

    __slots__ = ()
    deleted: Literal[True]
    """Always true."""
    name: str
    """The name of the secret."""


class SecretPage(Record):
    """A page of secrets by name, in alphabetical order."""

    __slots__ = ()
    items_: list[SecretView]
    """The items of the page."""
    next_cursor: str | None
    """Send it as `cursor`; null on the last page."""


class SecretRef(Record):
    """`{"secret": name}`: the value lies in the service's secret store under that name."""

    __slots__ = ()
    secret: str
    """The name of the secret."""


class SecretUrl(TypedDict):
    """The name of the secret that holds the URL."""

    secret: str
    """The name of the secret."""


class SecretView(Record):
    """A secret by its name; its value is never shown."""

    __slots__ = ()
    created_at: str
    """When it was created."""
    name: str
    """The name of the secret."""
    updated_at: str
    """When it last changed."""


class SessionEnded(Record):
    """A SessionEnded."""

    __slots__ = ()
    ended: Literal[True]
    """Always true."""
    id: str
    """The id of the session."""


class SigningSecret(Record):
    """The secret with which receivers verify calls of every version of `runtime_name`. Shown once."""

    __slots__ = ()
    runtime_name: str
    """The name of the runtime."""
    signing_secret: str
    """What receivers verify calls with. Shown once."""


class SourceDeleted(Record):
    """A SourceDeleted."""

    __slots__ = ()
    deleted: Literal[True]
    """Always true."""
    name: str
    """The name of the source."""


class SourceLimitsView(Record):
    """The limits of a statement."""

    __slots__ = ()
    bytes: int
    """How many bytes a statement may return."""
    concurrent_statements: int
    """In each process of the service."""
    rows: int
    """How many rows a statement may return."""
    timeout_ms: int
    """How long a statement may take, in milliseconds."""


class SourceOptions(TypedDict):
    """The options of a source. `paths`: absolute paths of files; a directory means the files in
    it. `sensitive`: patterns with * for names of sensitive columns, which replace the built-in
    ones. `nullValues`: strings that mean null in CSV files, besides an empty one.
    """

    limits: NotRequired[LimitsBody | None]
    """Limits of each statement."""
    nullValues: NotRequired[list[str] | None]
    """Texts that mean null in CSV files, besides an empty one."""
    paths: NotRequired[list[str] | None]
    """The paths in the source that are used."""
    sensitive: NotRequired[list[str] | None]
    """Columns whose values are never shown."""


class SourceOptionsView(Record):
    """`immutable`: the operator declares that the file does not change."""

    __slots__ = ()
    immutable: Literal[True] | None
    """Whether the file is read as one that never changes."""
    limits: SourceLimitsView
    """Limits of each statement."""
    null_values: list[str] | None
    """Texts that mean null in CSV files, besides an empty one."""
    paths: list[str] | None
    """The paths in the source that are used."""
    sensitive: list[str] | None
    """Columns whose values are never shown."""


class SourcePage(Record):
    """A page of sources by name, in alphabetical order."""

    __slots__ = ()
    items_: list[SourceView]
    """The items of the page."""
    next_cursor: str | None
    """Send it as `cursor`; null on the last page."""


class SourceView(Record):
    """A source, without its secret. `declared`: configured by the operator; the API cannot change
    it.
    """

    __slots__ = ()
    created_at: str
    """When it was created."""
    declared: bool
    """Whether the operator declared it; it cannot be changed over HTTP then."""
    kind: Literal["postgres", "duckdb", "sqlite"]
    """The kind of database."""
    name: str
    """The name of the source."""
    options: SourceOptionsView
    """How the source is used."""
    profile: ProfileState
    """The last profile."""
    schemas: list[str]
    """The schemas of the database that are used."""
    updated_at: str
    """When it last changed."""
    url: UrlView | None
    """The secret that holds the address; null if the operator declared it."""


class SpecProblem(Record):
    """One thing wrong with a spec: where (a JSON pointer) and what."""

    __slots__ = ()
    message: str
    """What is wrong, and what to do."""
    pointer: str
    """A JSON pointer to what is wrong."""


class Spent(Record):
    """Usage of models. `costUsd` is the cost of calls with a known price, or null if there are
    none; `unpricedCalls` used tokens without a known price.
    """

    __slots__ = ()
    cost_usd: float | None
    """The cost in US dollars; null if no price is known."""
    model_calls: int
    """How many calls of models there were."""
    unpriced_calls: int
    """How many calls used tokens whose price is not known."""
    usage: Usage
    """The tokens that were used."""


class StateChange(Record):
    """A write to a document: where and how, never the value. `write` identifies it in the log."""

    __slots__ = ()
    method: Literal["set", "merge", "assign", "push", "concat"]
    """How the value was written."""
    path: str
    """Where it was written."""
    write: str | int
    """The number of the write in the log."""


class StateView(Record):
    """The state of a thread, as it is or as it was. `write` is the number of its last write, 0
    before any.
    """

    __slots__ = ()
    document: dict[str, Any]
    """The state."""
    thread_id: str
    """The id of the thread."""
    write: int
    """The number of its last write, 0 before any."""


class StateWriteEvent(Record):
    """Something was written to the state, the memory or a data object."""

    __slots__ = ()
    agent: str | None
    """The agent at work; empty for a plan that a host executes."""
    at: str
    """When it happened."""
    data: StateChange
    """What was written where."""
    parent_work_id: str | None
    """The work record above; null at the root."""
    query_id: str
    """The query whose journal it is in."""
    seq: int
    """Its number in the journal of the query, from 1."""
    thread_id: str
    """The id of the thread."""
    type: Literal["state-write"]
    """What it is."""
    work_id: str | None
    """The unit of work that it tells of."""


class StatementView(Record):
    """A statement that a unit of work ran on a data source. `rows` and `bytes` of its result are
    null if it failed; `error` is the code of its error.
    """

    __slots__ = ()
    bytes: int | None
    """The size, in bytes."""
    elapsed_ms: int
    """How long it took, in milliseconds."""
    error: str | None
    """Why it failed."""
    rows: int | None
    """How many rows."""
    source: str
    """The name of the source of data."""
    sql: str
    """The statement."""
    truncated: bool
    """Whether there were more rows or bytes than were returned."""


class StepRetryEvent(Record):
    """The turn is repeated: discard its text so far."""

    __slots__ = ()
    agent: str | None
    """The agent at work; empty for a plan that a host executes."""
    at: str
    """When it happened."""
    parent_work_id: str | None
    """The work record above; null at the root."""
    query_id: str
    """The query whose journal it is in."""
    reason: str
    """Why the turn is repeated."""
    seq: int
    """Its number in the journal of the query, from 1."""
    thread_id: str
    """The id of the thread."""
    turn: int
    """The number of the model turn, from 1."""
    type: Literal["step-retry"]
    """What it is."""
    work_id: str | None
    """The unit of work that it tells of."""


class StepStartEvent(Record):
    """A model turn begins; its output follows."""

    __slots__ = ()
    agent: str | None
    """The agent at work; empty for a plan that a host executes."""
    at: str
    """When it happened."""
    parent_work_id: str | None
    """The work record above; null at the root."""
    query_id: str
    """The query whose journal it is in."""
    seq: int
    """Its number in the journal of the query, from 1."""
    thread_id: str
    """The id of the thread."""
    turn: int
    """The number of the model turn, from 1."""
    type: Literal["step-start"]
    """What it is."""
    work_id: str | None
    """The unit of work that it tells of."""


class StoredValuePage(Record):
    """A part of a value that was stored for an approval, as canonical JSON. The SHA-256 of all
    parts together is `digest`.
    """

    __slots__ = ()
    digest: str
    """The SHA-256, in hex."""
    next_cursor: str | None
    """Send it as `cursor`; null on the last page."""
    size_bytes: int
    """The size of the whole value as JSON, in bytes."""
    text: str
    """A part of the JSON."""
    type: str
    """The type of the value."""
    variable: str
    """The path of the value."""


class SubjectReference(Record):
    """A reference that a plan names. `digest` is the SHA-256 of its value at that moment."""

    __slots__ = ()
    digest: str
    """The SHA-256, in hex."""
    glimpse: Any
    """A summary of the value, up to 4 KiB."""
    id: str
    """The id of the reference."""
    kind: str
    """Its kind."""
    size_bytes: int
    """The size, in bytes."""


class SubjectVariable(Record):
    """A path that a plan reads: its value at that moment, or in `resultOf` the actions whose
    result it will be.
    """

    __slots__ = ()
    digest: str | None
    """The SHA-256, in hex."""
    glimpse: Any
    """A summary of the value, up to 4 KiB."""
    result_of: list[int] | None
    """The actions whose result it will be."""
    size_bytes: int | None
    """The size, in bytes."""
    type: str | None
    """The type of the value."""
    variable: str
    """The variable, such as `†state.total`."""


class TenantPage(Record):
    """A TenantPage."""

    __slots__ = ()
    items_: list[TenantView]
    """The items of the page."""
    next_cursor: str | None
    """Send it as `cursor`; null on the last page."""


class TenantView(Record):
    """A tenant, its limits and what it uses. Counts end at 1,000; `/metrics` has whole ones of the
    installation.
    """

    __slots__ = ()
    blob_bytes: int
    """The size of the bodies of its files and artifacts, which the limit `bytes` is for. Values in
    the database, such as references and state, are not counted.
    """
    created_at: str
    """When it was created."""
    id: str
    """The id of the tenant."""
    limits: dict[str, Any]
    """The limits that it has; one that is missing is unlimited."""
    pending_approvals: int
    """How many of its approvals are pending, up to 1,000."""
    queued_queries: int
    """How many of its queries are queued, up to 1,000."""
    running_queries: int
    """How many of its queries run, up to 1,000."""
    waiting_queries: int
    """How many of its queries wait, up to 1,000."""


class TextBlock(Record):
    """A TextBlock."""

    __slots__ = ()
    text: str
    """The text."""
    type: Literal["text"]
    """What it is."""


class TextEvent(Record):
    """A piece of the model's text; `workId` is the model call's."""

    __slots__ = ()
    agent: str | None
    """The agent at work; empty for a plan that a host executes."""
    at: str
    """When it happened."""
    parent_work_id: str | None
    """The work record above; null at the root."""
    query_id: str
    """The query whose journal it is in."""
    seq: int
    """Its number in the journal of the query, from 1."""
    text: str
    """The text."""
    thread_id: str
    """The id of the thread."""
    turn: int
    """The number of the model turn, from 1."""
    type: Literal["text"]
    """What it is."""
    work_id: str | None
    """The unit of work that it tells of."""


class ThinkingBlock(Record):
    """The model's reasoning; `opaque` is what its vendor wants back, unread."""

    __slots__ = ()
    opaque: dict[str, Any]
    """What the vendor wants back, unread."""
    text: str
    """The text."""
    type: Literal["thinking"]
    """What it is."""


class ThreadDeleted(Record):
    """A ThreadDeleted."""

    __slots__ = ()
    deleted: Literal[True]
    """Always true."""
    id: str
    """The id of the thread."""


class ThreadPage(Record):
    """A ThreadPage."""

    __slots__ = ()
    items_: list[ThreadSummary]
    """The items of the page."""
    next_cursor: str | None
    """Send it as `cursor`; null on the last page."""


class ThreadSummary(Record):
    """A conversation. `key` is the caller's own name for it; `runtimeId` the version that it began
    with.
    """

    __slots__ = ()
    created_at: str
    """When it was created."""
    id: str
    """The id of the thread."""
    key: str | None
    """The caller's own key of it."""
    runtime_id: str | None
    """The id of the version of the runtime that it began with."""


class ThreadView(Record):
    """A conversation and the ids of its queries that are not over, oldest first."""

    __slots__ = ()
    active_queries: list[str]
    """The ids of its queries that are not over, oldest first."""
    created_at: str
    """When it was created."""
    id: str
    """The id of the thread."""
    key: str | None
    """The caller's own key of it."""
    runtime_id: str | None
    """The id of the version of the runtime that it began with."""


class Ticket(Record):
    """A ticket just created. `ticket` is its text, shown this once; the page at `url` starts a
    session with it.
    """

    __slots__ = ()
    expires_at: str
    """When it expires; null if it does not."""
    id: str
    """The id of the ticket."""
    ticket: str
    """The text of the ticket, shown once."""
    url: str
    """A page of the service, with the ticket in the fragment."""


class ToolAgentEvent(Record):
    """A sub-agent starts or ends; the end lists the artifacts that it published."""

    __slots__ = ()
    agent: str | None
    """The agent at work; empty for a plan that a host executes."""
    agent_name: str
    """The name of the agent."""
    artifacts: list[ArtifactInfo] | None
    """At the end, what the sub-agent published."""
    at: str
    """When it happened."""
    parent_work_id: str | None
    """The work record above; null at the root."""
    query_id: str
    """The query whose journal it is in."""
    seq: int
    """Its number in the journal of the query, from 1."""
    state: Literal["call", "result"]
    """Whether it starts (`call`) or has ended (`result`)."""
    thread_id: str
    """The id of the thread."""
    type: Literal["tool-agent"]
    """What it is."""
    work_id: str | None
    """The unit of work that it tells of."""


class ToolAnnotations(Record):
    """Promises of a tool: that it changes nothing, or nothing more when it is repeated."""

    __slots__ = ()
    idempotent: bool | None
    """The same call again changes nothing more. Default: `false`."""
    read_only: bool | None
    """A call changes nothing. Default: `false`."""


class ToolCall(Record):
    """A tool to run with `args`."""

    __slots__ = ()
    args: Any
    """The arguments of the call."""
    claim_token: str
    """The token of the claim on the call."""
    claimed_until: str
    """When the claim expires unless a heartbeat extends it."""
    claims: int
    """How often it was claimed, this time included."""
    context: CallContext
    """Where in which query the call was made."""
    definition_digest: str
    """The SHA-256 of the tool's definition, in hex."""
    name: str
    """The name of the tool or dispatcher."""
    purpose: Literal["tool"]
    """Always `tool`."""
    query_id: str
    """The id of the query."""
    timeout_ms: int
    """How long it may take, in milliseconds."""
    work_id: str
    """The id of the work record."""


class ToolEventEmitted(Record):
    """The event is in the journal of the query."""

    __slots__ = ()
    emitted: Literal[True]
    """Always true."""


class ToolInvocationEvent(Record):
    """A tool is called, and later its result or error. `sent_args`: an approver's, in the place of
    the model's.
    """

    __slots__ = ()
    agent: str | None
    """The agent at work; empty for a plan that a host executes."""
    args: Any
    """The arguments, as the model wrote them."""
    at: str
    """When it happened."""
    error: ErrorInfo | None
    """The error that the model receives."""
    parent_work_id: str | None
    """The work record above; null at the root."""
    query_id: str
    """The query whose journal it is in."""
    result: Any
    """What the tool returned."""
    sent_args: dict[str, Any] | None
    """The arguments of an approver, if they replaced the model's."""
    seq: int
    """Its number in the journal of the query, from 1."""
    state: Literal["call", "result", "error"]
    """Whether it is called, or has returned or failed."""
    thread_id: str
    """The id of the thread."""
    tool_invocation_id: str
    """The model's own id of the call, unique within one run of the agent."""
    tool_name: str
    """The name of the tool."""
    type: Literal["tool-invocation"]
    """What it is."""
    work_id: str | None
    """The unit of work that it tells of."""


class ToolProgressEvent(Record):
    """A running tool says how far it is."""

    __slots__ = ()
    agent: str | None
    """The agent at work; empty for a plan that a host executes."""
    at: str
    """When it happened."""
    label: str
    """What people read."""
    milestone: bool | str | None
    """What was reached."""
    parent_work_id: str | None
    """The work record above; null at the root."""
    phase_index: int | None
    """The number of the phase at work, counted from 0."""
    query_id: str
    """The query whose journal it is in."""
    seq: int
    """Its number in the journal of the query, from 1."""
    thread_id: str
    """The id of the thread."""
    tool_name: str
    """The name of the tool."""
    total_phases: int | None
    """How many phases there are."""
    type: Literal["tool-progress"]
    """What it is."""
    work_id: str | None
    """The unit of work that it tells of."""


class ToolResultBlock(Record):
    """A ToolResultBlock."""

    __slots__ = ()
    content: str
    """What the tool returned."""
    is_error: bool
    """Whether the call failed."""
    tool_use_id: str
    """The model's own id of the call."""
    type: Literal["tool_result"]
    """What it is."""


class ToolSpec(Record):
    """A tool that exists; `agents[].tools` names who may call it."""

    __slots__ = ()
    annotations: ToolAnnotations | None
    """What it promises."""
    approval: Literal["never", "always", "default"] | ApprovalRule | None
    """`"always"`, `"never"`, or an ApprovalRule; unset or `"default"`, what agent and runtime say."""
    description: str | None
    """The description that the model reads."""
    input_schema: dict[str, Any]
    """Whatever `normalize_schema` takes; arguments are validated against it."""
    name: str
    """What the model calls it."""
    output_schema: dict[str, Any] | None
    """What results must match."""
    replay: Literal["safe", "never"] | None
    """`"safe"` or `"never"`: whether a call may be repeated when nobody knows whether it ran."""
    timeout_ms: int | None
    """How long a call may take, in milliseconds."""
    transport: Transport | None
    """Where it runs: `{"kind": "client"}` (processes of the user), `"http"`, `"mcp"`, `"python"`.
    Default: `{"kind":"client"}`.
    """


class ToolSubject(Record):
    """The subject of an approval of a tool call: the call as it was when approval was requested."""

    __slots__ = ()
    args: dict[str, Any]
    """The arguments of the call."""
    definition_digest: str
    """The SHA-256 of the tool's definition, in hex."""
    kind: Literal["tool"]
    """Always `tool`."""
    runtime_version: str
    """The digest of the runtime's spec."""
    tool: str
    """The name of the tool."""


class ToolUseBlock(Record):
    """A call of a tool; `arguments` is the text that the model wrote."""

    __slots__ = ()
    arguments: str
    """The arguments, as the model wrote them."""
    id: str
    """The model's own id of the call."""
    name: str
    """The name of the tool."""
    type: Literal["tool_use"]
    """What it is."""


class ToolVersion(TypedDict):
    """A tool that the claimant serves. With a digest, only calls of exactly that definition match."""

    definitionDigest: NotRequired[str | None]
    """Only calls of exactly this definition."""
    name: str
    """The name of the tool."""


class TransitionPage(Record):
    """A TransitionPage."""

    __slots__ = ()
    items_: list[TransitionView]
    """The items of the page."""
    next_cursor: str | None
    """Send it as `cursor`; null on the last page."""


class TransitionView(Record):
    """One change of a plan's status. `from` is null when it was first stored. `by` is the agent,
    or the principal of the host, whose work changed it; who decided is `decidedBy` of the
    approval.
    """

    __slots__ = ()
    approval_id: str | None
    """The id of the approval."""
    at: str
    """When it changed."""
    by: str
    """The agent or principal whose work changed it."""
    digest: str
    """The SHA-256, in hex."""
    from_: Literal["draft", "approved", "executing", "executed", "failed"] | None
    """The status before; null when it was first stored."""
    revision: int
    """The number of the revision, from 1."""
    to: Literal["draft", "approved", "executing", "executed", "failed"]
    """The status after."""
    work_id: str
    """The id of the work record."""


class TrimmedTurns(Record):
    """The turns that were dropped from the prompt. They stay on record."""

    __slots__ = ()
    tokens: int
    """How many tokens."""
    turns: int
    """How many turns are left out."""


class UrlView(Record):
    """The name of the secret that holds the URL. The URL is never shown."""

    __slots__ = ()
    secret: str
    """The name of the secret."""


class Usage(Record):
    """Tokens of model calls."""

    __slots__ = ()
    cache_read_tokens: int | None
    """Default: `0`."""
    cache_write_tokens: int | None
    """Default: `0`."""
    input_tokens: int | None
    """Default: `0`."""
    output_tokens: int | None
    """Default: `0`."""
    reasoning_tokens: int | None
    """Default: `0`."""


class UsageGroup(Record):
    """The usage of one query, thread, agent, model, artifact, channel, runtime or day. `key` null:
    what belongs to none. A model call belongs to the next artifact that its run published, or
    the nearest run above it that published any. With `groupBy=revision`, `key` is an artifact,
    `revision` its place in the chain of `replaces`, counted from 1, and `firstArtifactId` the
    artifact with which this chain begins.
    """

    __slots__ = ()
    artifacts: EstimatedKeptOut
    """What artifacts kept out of prompts."""
    cost_usd: float | None
    """The cost in US dollars; null if no price is known."""
    failed: Spent
    """What was used in vain."""
    first_artifact_id: str | None
    """The id of the first revision."""
    key: str | None
    """The value that the group is about; null for what belongs to none."""
    model_calls: int
    """How many calls of models there were."""
    references: EstimatedKeptOut
    """What references kept out of prompts."""
    revision: int | None
    """The number of the revision, from 1."""
    unpriced_calls: int
    """How many calls used tokens whose price is not known."""
    usage: Usage
    """The tokens that were used."""


class UsageReport(Record):
    """Usage of what began in the range, in groups. `totals` are those of the whole range, on every
    page.
    """

    __slots__ = ()
    from_: str
    """The beginning of the range."""
    group_by: Literal[
        "query", "thread", "agent", "model", "artifact", "revision", "channel", "runtime", "day"
    ]
    """What the groups are about."""
    items_: list[UsageGroup]
    """The groups of the page."""
    next_cursor: str | None
    """Send it as `cursor`; null on the last page."""
    to: str
    """The end of the range."""
    totals: Usages
    """The sums of the whole range."""


class Usages(Record):
    """Usage of models, the part that was in vain (`failed`: the call, its run, a run above it, or
    the query failed or was canceled), and the bytes that references and artifacts kept out of
    prompts.
    """

    __slots__ = ()
    artifacts: EstimatedKeptOut
    """What artifacts kept out of prompts."""
    cost_usd: float | None
    """The cost in US dollars; null if no price is known."""
    failed: Spent
    """What was used in vain."""
    model_calls: int
    """How many calls of models there were."""
    references: EstimatedKeptOut
    """What references kept out of prompts."""
    unpriced_calls: int
    """How many calls used tokens whose price is not known."""
    usage: Usage
    """The tokens that were used."""


class Validation(Record):
    """The result of a validation: the assembled spec, or what is wrong with the spec."""

    __slots__ = ()
    errors: list[SpecProblem]
    """The first errors."""
    has_more_errors: bool
    """Whether there are more errors than are listed."""
    spec: dict[str, Any] | None
    """The assembled spec, if it is valid."""
    valid: bool
    """Whether the spec can be registered."""


class Vote(Record):
    """One principal's decision, the key it came with, and whether it asks for the approval to be
    remembered.
    """

    __slots__ = ()
    at: str
    """When the principal decided."""
    decision: Literal["approve", "reject", "revise"]
    """What was decided."""
    key_id: str | None
    """The id of the key that it came with."""
    principal: str
    """The caller: a person or a program."""
    scope: Literal["thread"] | None
    """`thread` asks for the approval to be remembered in this thread."""


class WhoAmI(Record):
    """The identity and permissions of a request. `tools` null allows every tool."""

    __slots__ = ()
    expires_at: str | None
    """When the key or the session ends, null for a key without an end."""
    operator: bool
    """Whether this is the operator of the installation, who may list its tenants and processes."""
    principal: str
    """The caller: a person or a program."""
    scopes: list[
        Literal[
            "read",
            "runtimes:write",
            "queries:write",
            "plans:write",
            "plans:settle",
            "approvals:decide",
            "data:write",
            "sources:admin",
            "tools:serve",
            "actions:serve",
            "act-as",
            "admin",
        ]
    ]
    """What the key may do."""
    session_id: str | None
    """The session of the request, null with a key."""
    tenant: str
    """The id of the tenant."""
    tools: list[str] | None
    """The tools that the key may serve; null is any."""
    version: str
    """The version of the service."""


class WorkEndEvent(Record):
    """A unit of work ended."""

    __slots__ = ()
    agent: str | None
    """The agent at work; empty for a plan that a host executes."""
    at: str
    """When it happened."""
    data: WorkInfo
    """The work record as it ended."""
    parent_work_id: str | None
    """The work record above; null at the root."""
    query_id: str
    """The query whose journal it is in."""
    seq: int
    """Its number in the journal of the query, from 1."""
    thread_id: str
    """The id of the thread."""
    type: Literal["work-end"]
    """What it is."""
    work_id: str | None
    """The unit of work that it tells of."""


class WorkError(Record):
    """Why work failed. `writtenTo` are the paths that an action's error went to, which handles it."""

    __slots__ = ()
    code: str
    """A stable code."""
    message: str
    """What is wrong, and what to do."""
    written_to: list[str] | None
    """The paths that the error was written to."""


class WorkInfo(Record):
    """The part of a work record that its start and end tell."""

    __slots__ = ()
    agent: str | None
    """The name of the agent."""
    attempts: int | None
    """How many attempts there were."""
    cost_usd: float | None
    """The cost in US dollars; null if no price is known."""
    duration_ms: int | None
    """How long it took, in milliseconds."""
    ended_at: str | None
    """When it ended; null while it has not."""
    error: ErrorInfo | None
    """Why it failed."""
    id: str
    """The id of the work record."""
    kind: Literal[
        "query", "agent", "model_call", "tool_call", "predicate", "plan_execution", "action", "host"
    ]
    """What kind of work it is."""
    model: str | None
    """The id of the model."""
    name: str
    """The name of the agent, tool, model or plan at work."""
    parent_id: str | None
    """The id of the work record above; null at the root."""
    started_at: str | None
    """When it began; null before."""
    status: Literal["running", "waiting", "succeeded", "failed", "cancelled", "unknown"]
    """The status."""
    usage: Usage | None
    """The tokens that were used."""


class WorkItem(Record):
    """A unit of work in the list of its query. `bodiesLeftOut`: the list has no room for its
    `input`, `output` and `error`; `GET /work-records/{id}` has them.
    """

    __slots__ = ()
    agent: str
    """The name of the agent."""
    attempts: int
    """How many attempts there were."""
    bodies_left_out: Literal[True] | None
    """True if the list has no room for its `input`, `output` and `error`."""
    cost_usd: float | None
    """The cost in US dollars; null if no price is known."""
    duration_ms: int | None
    """How long it took, in milliseconds."""
    ended_at: str | None
    """When it ended; null while it has not."""
    error: WorkError | None
    """Why it failed."""
    id: str
    """The id of the work record."""
    input: Any
    """What it was given."""
    kind: Literal[
        "query", "agent", "model_call", "tool_call", "predicate", "plan_execution", "action", "host"
    ]
    """What kind of work it is."""
    model: str | None
    """The id of the model."""
    name: str
    """The name of the agent, tool, model or plan at work."""
    output: Any
    """What came of it."""
    parent_id: str | None
    """The id of the work record above; null at the root."""
    price_date: str | None
    """The day whose price was used."""
    price_table: str | None
    """The version of the price table."""
    prompt_cache_key: str | None
    """The fingerprint of the system prompt."""
    query_id: str | None
    """The id of the query."""
    references: list[ReferenceUse] | None
    """What it did with references."""
    started_at: str
    """When it began; null before."""
    statement: StatementView | None
    """The statement that it ran on a source."""
    status: Literal["running", "waiting", "succeeded", "failed", "cancelled", "unknown"]
    """The status."""
    thread_id: str
    """The id of the thread."""
    tool_invocation_id: str | None
    """The model's own id of the call, unique within one run of the agent."""
    usage: Usage | None
    """The tokens that were used."""


class WorkList(Record):
    """A WorkList."""

    __slots__ = ()
    items_: list[WorkItem]
    """The items of the page."""


class WorkNode(Record):
    """A unit of work in a tree, without its `input` and `output`, with what it and everything
    below it used.
    """

    __slots__ = ()
    agent: str
    """The name of the agent."""
    attempts: int
    """How many attempts there were."""
    cost_usd: float | None
    """The cost in US dollars; null if no price is known."""
    duration_ms: int | None
    """How long it took, in milliseconds."""
    ended_at: str | None
    """When it ended; null while it has not."""
    error: WorkError | None
    """Why it failed."""
    id: str
    """The id of the work record."""
    kind: Literal[
        "query", "agent", "model_call", "tool_call", "predicate", "plan_execution", "action", "host"
    ]
    """What kind of work it is."""
    model: str | None
    """The id of the model."""
    name: str
    """The name of the agent, tool, model or plan at work."""
    parent_id: str | None
    """The id of the work record above; null at the root."""
    price_date: str | None
    """The day whose price was used."""
    price_table: str | None
    """The version of the price table."""
    prompt_cache_key: str | None
    """The fingerprint of the system prompt."""
    query_id: str | None
    """The id of the query."""
    rollup: Rollup
    """What it and everything below it used, each once."""
    started_at: str
    """When it began; null before."""
    status: Literal["running", "waiting", "succeeded", "failed", "cancelled", "unknown"]
    """The status."""
    thread_id: str
    """The id of the thread."""
    tool_invocation_id: str | None
    """The model's own id of the call, unique within one run of the agent."""
    usage: Usage | None
    """The tokens that were used."""


class WorkPage(Record):
    """A page of work records. It may have fewer than `limit`, or none, although there are more:
    `nextCursor` tells.
    """

    __slots__ = ()
    items_: list[WorkSummary]
    """The items of the page."""
    next_cursor: str | None
    """Send it as `cursor`; null on the last page."""


class WorkRecord(Record):
    """A unit of work and what it and everything below it used. With `tree=true`, `below` has all
    that is below it.
    """

    __slots__ = ()
    agent: str
    """The name of the agent."""
    attempts: int
    """How many attempts there were."""
    below: list[WorkNode] | None
    """Parents before their children, siblings oldest first."""
    cost_usd: float | None
    """The cost in US dollars; null if no price is known."""
    duration_ms: int | None
    """How long it took, in milliseconds."""
    ended_at: str | None
    """When it ended; null while it has not."""
    error: WorkError | None
    """Why it failed."""
    id: str
    """The id of the work record."""
    input: Any
    """What it was given."""
    kind: Literal[
        "query", "agent", "model_call", "tool_call", "predicate", "plan_execution", "action", "host"
    ]
    """What kind of work it is."""
    model: str | None
    """The id of the model."""
    name: str
    """The name of the agent, tool, model or plan at work."""
    output: Any
    """What came of it."""
    parent_id: str | None
    """The id of the work record above; null at the root."""
    price_date: str | None
    """The day whose price was used."""
    price_table: str | None
    """The version of the price table."""
    prompt_cache_key: str | None
    """The fingerprint of the system prompt."""
    query_id: str | None
    """The id of the query."""
    references: list[ReferenceUse] | None
    """What it did with references."""
    rollup: Rollup
    """What it and everything below it used, each once."""
    started_at: str
    """When it began; null before."""
    statement: StatementView | None
    """The statement that it ran on a source."""
    status: Literal["running", "waiting", "succeeded", "failed", "cancelled", "unknown"]
    """The status."""
    thread_id: str
    """The id of the thread."""
    tool_invocation_id: str | None
    """The model's own id of the call, unique within one run of the agent."""
    usage: Usage | None
    """The tokens that were used."""


class WorkStartEvent(Record):
    """A unit of work begins."""

    __slots__ = ()
    agent: str | None
    """The agent at work; empty for a plan that a host executes."""
    at: str
    """When it happened."""
    data: WorkInfo
    """The work record as it begins."""
    parent_work_id: str | None
    """The work record above; null at the root."""
    query_id: str
    """The query whose journal it is in."""
    seq: int
    """Its number in the journal of the query, from 1."""
    thread_id: str
    """The id of the thread."""
    type: Literal["work-start"]
    """What it is."""
    work_id: str | None
    """The unit of work that it tells of."""


class WorkSummary(Record):
    """A unit of work. Model calls also have their model, usage and cost; `priceDate` is the date
    of the price, from `priceTable`. `waiting`: its query waits or is queued.
    """

    __slots__ = ()
    agent: str
    """The name of the agent."""
    attempts: int
    """How many attempts there were."""
    cost_usd: float | None
    """The cost in US dollars; null if no price is known."""
    duration_ms: int | None
    """How long it took, in milliseconds."""
    ended_at: str | None
    """When it ended; null while it has not."""
    error: WorkError | None
    """Why it failed."""
    id: str
    """The id of the work record."""
    kind: Literal[
        "query", "agent", "model_call", "tool_call", "predicate", "plan_execution", "action", "host"
    ]
    """What kind of work it is."""
    model: str | None
    """The id of the model."""
    name: str
    """The name of the agent, tool, model or plan at work."""
    parent_id: str | None
    """The id of the work record above; null at the root."""
    price_date: str | None
    """The day whose price was used."""
    price_table: str | None
    """The version of the price table."""
    prompt_cache_key: str | None
    """The fingerprint of the system prompt."""
    query_id: str | None
    """The id of the query."""
    started_at: str
    """When it began; null before."""
    status: Literal["running", "waiting", "succeeded", "failed", "cancelled", "unknown"]
    """The status."""
    thread_id: str
    """The id of the thread."""
    tool_invocation_id: str | None
    """The model's own id of the call, unique within one run of the agent."""
    usage: Usage | None
    """The tokens that were used."""


class WritePage(Record):
    """A WritePage."""

    __slots__ = ()
    items_: list[WriteView]
    """The items of the page."""
    next_cursor: str | None
    """Send it as `cursor`; null on the last page."""


class WriteView(Record):
    """A write to the state or the memory. `failed`: what was written is the error of a call that
    failed.
    """

    __slots__ = ()
    agent: str | None
    """The name of the agent."""
    at: str
    """When it was written."""
    failed: bool
    """Whether the value is the error of a call that failed."""
    forked_from: str | None
    """`<thread>@<write>` where the state began as that of another thread."""
    glimpse: Any
    """A summary of the value, up to 4 KiB."""
    method: Literal["set", "merge", "assign", "push", "concat"]
    """How the value was written."""
    path: str
    """Where it was written."""
    principal: str | None
    """The caller that wrote outside of any call; memory only."""
    query_id: str | None
    """The id of the query."""
    size_bytes: int
    """The size, in bytes."""
    value: Any
    """Left out where it has more than 4 KiB of JSON."""
    work_id: str | None
    """The id of the work record."""
    write: int
    """The number of the write."""


Event: TypeAlias = (
    QueryStatusEvent
    | StepStartEvent
    | StepRetryEvent
    | TextEvent
    | ReasoningEvent
    | ContextTrimmedEvent
    | ToolInvocationEvent
    | ToolProgressEvent
    | ToolAgentEvent
    | DataToolAgentEvent
    | ApprovalRequiredEvent
    | ApprovalCommentEvent
    | ApprovalDecisionEvent
    | PlanStatusChangeEvent
    | ActionStatusChangeEvent
    | ReferenceCreatedEvent
    | StateWriteEvent
    | ArtifactPublishedEvent
    | ArtifactDecisionEvent
    | WorkStartEvent
    | WorkEndEvent
    | CustomEvent
    | DataCostSummaryEvent
    | DataLatencySummaryEvent
    | FinishEvent
    | ErrorEvent
)
Subject: TypeAlias = PlanSubject | ToolSubject
Transport: TypeAlias = Literal["client"] | HttpTransport | ClientTransport | McpTransport | PythonTransport
