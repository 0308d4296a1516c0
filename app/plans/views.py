"""Answers of the routes of plans."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field, JsonValue

from app.base.responses import CursorPage, View
from app.events import ActionStatus, Decision, Fact, JsonObject, PlanStatus
from app.plans.changes import Change, MatchRule
from app.plans.models import RevisionStatus
from app.queries.views import AcceptedQuery


class SettledAction(View):
    """What a person said about an action whose outcome was unknown."""

    settled_by: str | None = None
    """The principal that settled it."""
    details: JsonValue = None
    """What they know about it; in a result of a dispatcher, whatever it returned."""
    written_to: list[str] | None = None
    """The output paths that it was written to."""


class ActionResultView(SettledAction):
    """What the dispatcher of an action returned, or what a person who settled it said."""

    entities_affected: int | None = None
    """How many things the action changed."""
    summary: str | None = None
    """What was done, in words."""


class ActionErrorView(SettledAction):
    """Why an action failed or what is known of its outcome, or what a person who settled it said."""

    code: str | None = None
    """A stable code."""
    message: str | None = None
    """What happened."""


class PlanResultAction(View):
    """An action in the result of its plan."""

    index: int
    """The place of the action in its plan, counted from 0."""
    kind: str
    """The kind of the action."""
    status: ActionStatus
    error: ActionErrorView | None = None
    """Why it failed, in short."""


class PlanResult(View):
    """What executing a plan led to. If its query ended first, it has a `reason` and no actions."""

    status: Literal["executed", "failed"]
    """Whether every action took effect, or its failure was handled."""
    label: str
    reason: str | None = None
    """Why nothing was executed to its end."""
    actions: list[PlanResultAction] | None = None
    """Its actions."""
    entities_affected: int | None = None
    """How many things the actions changed."""
    summary: str | None = None
    """What was done, in words."""


class PlanView(View):
    """A plan at its current revision. `body` has its actions as `{kind, payload, references}`, and, where the result of
    one goes to a path, `_outputPath` and `_outputMethod`; with `variables`, strings in it that begin with a dagger are
    variables. `digest` is the SHA-256 of its stored bytes; `decision` is what was said of a revision that was not
    approved; `result` what executing it answered. `label` is what people read in place of the status: the spec's display
    alias, else the status. `revisionStatus` is the status of the current revision."""

    id: str
    """The id of the plan."""
    key: str | None
    """The caller's own key of it."""
    thread_id: str
    runtime_id: str
    spec_name: str
    status: PlanStatus
    label: str
    revision: int
    revision_status: RevisionStatus
    """Whether the revision was rejected, or is to be revised."""
    digest: str
    body: JsonObject
    """The plan as it is stored."""
    variables: bool
    """Whether strings that begin with a dagger are variables."""
    copied_from: str | None
    """The id of the plan that it is a copy of."""
    query_id: str | None
    decision: Decision | None
    feedback: str | None
    partial: JsonValue
    facts: list[Fact] | None
    """The facts that its kind declares, as the gate of this revision last opened; null before."""
    result: PlanResult | None
    """What executing it returned."""
    created_at: datetime
    updated_at: datetime


class PlanPage(CursorPage):
    items: list[PlanView]


class AcceptedPlan(AcceptedQuery):
    """The query that executes the plan `planId`: a copy, where the plan had been approved before."""

    plan_id: str


class ListedRevision(View):
    """A revision, by which work record it was stored, and what was decided about it. Its `status` is `rejected` or
    `revised` if a person decided so, `replaced` if a later revision was stored, else that of the plan."""

    revision: int
    status: RevisionStatus
    digest: str
    stored_by: str
    """The id of the work record that stored it."""
    stored_at: datetime
    """When it was stored."""
    decision: Decision | None
    feedback: str | None
    facts: list[Fact] | None
    """The facts that the kind of the plan declares, as the gate of this revision last opened; null before."""


class RevisionPage(CursorPage):
    items: list[ListedRevision]


class RevisionView(ListedRevision):
    """A revision as it was stored."""

    body: JsonObject
    """The plan as it was stored."""
    partial: JsonValue


class FieldChangeView(View):
    """A difference at a place. A side that has nothing there is left out."""

    pointer: str
    """Where in the action, or in the plan: a JSON pointer."""
    before: JsonValue = None
    """The value in the earlier revision."""
    after: JsonValue = None
    """The value in the later revision."""


class ActionChangeView(View):
    """An action of two revisions, or of one of them. Every difference is in `fields`."""

    change: Change
    """Whether it is the same in both, changed, or only in one."""
    before: int | None
    """Its index in the earlier revision."""
    after: int | None
    """Its index in the later revision."""
    kind: str
    """The kind of the action."""
    matched_by: MatchRule | None
    """Why the two are compared: the key that the plan declares, equality, or kind and order between equal actions."""
    moved: bool
    """Whether its order among the matched actions changed."""
    fields: list[FieldChangeView]
    """Its differences."""


class RevisionChanges(View):
    """What changed between two revisions of a plan."""

    plan_id: str
    from_: int = Field(alias="from")
    """The earlier revision."""
    to: int
    """The later revision."""
    context: list[FieldChangeView]
    """The differences outside of the actions."""
    actions: list[ActionChangeView]
    """The actions of the later revision in its order, with those that were removed."""


class StoredValuePage(View):
    """A part of a value that was stored for an approval, as canonical JSON. The SHA-256 of all parts together is
    `digest`."""

    variable: str
    """The path of the value."""
    type: str
    """The type of the value."""
    size_bytes: int
    """The size of the whole value as JSON, in bytes."""
    digest: str
    text: str
    """A part of the JSON."""
    next_cursor: str | None
    """Send it as `cursor`; null on the last page."""


class TransitionView(View):
    """One change of a plan's status. `from` is null when it was first stored. `by` is the agent, or the principal of the host,
    whose work changed it; who decided is `decidedBy` of the approval."""

    from_: PlanStatus | None = Field(alias="from")
    """The status before; null when it was first stored."""
    to: PlanStatus
    """The status after."""
    revision: int
    at: datetime
    """When it changed."""
    by: str
    """The agent or principal whose work changed it."""
    work_id: str
    approval_id: str | None
    digest: str


class TransitionPage(CursorPage):
    items: list[TransitionView]


class ActionArtifact(View):
    """An artifact published by the call of an action; `GET /artifacts/{id}` has the record."""

    id: str
    """The id of the artifact."""
    channel: str
    path: str
    status: Literal["active", "superseded", "withdrawn"]


class ActionView(View):
    """An action of a plan that executes or did. `idempotencyKey` is the same for every attempt at it. Where its outcome is
    unknown, `error` says what is known; `settledBy` is who last settled it, or said `retry`. `artifacts` are the first 20
    that its call published, superseded and withdrawn ones too; what a call of several actions published for none of them in
    particular is listed with each. If `hasMoreArtifacts` is true, `GET /artifacts` lists them all
    with `includeSuperseded`: those of the action by `planId` and `actionIndex`, those of its call by `callId` (its
    `workId`)."""

    index: int
    """The place of the action in its plan, counted from 0."""
    revision: int
    kind: str
    """The kind of the action."""
    status: ActionStatus
    attempts: int
    idempotency_key: str
    work_id: str | None
    result: ActionResultView | None
    """What its dispatcher returned."""
    error: ActionErrorView | None
    """What is known, if it failed or its outcome is unknown."""
    settled_by: str | None
    """The principal that settled its outcome."""
    artifacts: list[ActionArtifact]
    """What it published: the oldest 20."""
    has_more_artifacts: bool
    """Whether it published more than `artifacts` lists."""
    updated_at: datetime


class ActionPage(CursorPage):
    items: list[ActionView]


class NodeView(View):
    """An action. It has no `status` before its plan is approved; `attempts` says how often it was sent."""

    index: int
    """The place of the action in its plan, counted from 0."""
    kind: str
    """The kind of the action."""
    reads: list[str]
    """The paths that it reads."""
    writes: list[str]
    """The paths that it writes."""
    status: ActionStatus | None
    """Its status; null before the plan was approved."""
    attempts: int


class EdgeView(View):
    """The action `to` reads `path`, and waits for the action `from`, which writes it, a part of it, or more than it."""

    from_: int = Field(alias="from")
    """The action that writes it."""
    to: int
    """The action that reads it."""
    path: str
    """The path that is read."""


class GraphView(View):
    """A plan at its current revision as a graph. Without variables it has no edges. `edgesLeftOut` counts those beyond
    the first 10,000."""

    plan_id: str
    revision: int
    status: PlanStatus
    nodes: list[NodeView]
    """The actions."""
    edges: list[EdgeView]
    """Which action waits for which."""
    edges_left_out: int
    """How many edges were left out, beyond the first 10,000."""
