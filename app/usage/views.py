"""Responses of the routes of work records and usage."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from app.base.responses import CursorPage, View, WholeList
from app.events import ErrorInfo, Usage, WorkKind, WorkStatus

GroupBy = Literal["query", "thread", "agent", "model", "artifact", "revision", "channel", "runtime", "day"]
GroupOrder = Literal["key", "cost"]


class ReferenceUse(View):
    """A use of a reference by a unit of work. A model read `promptBytes` of its `sizeBytes`; the rest stayed out of
    prompts."""

    use: Literal["create", "resolve", "hydrate"]
    """What was done with it."""
    kind: str
    """Its kind."""
    id: str
    """The id of the reference."""
    size_bytes: int
    prompt_bytes: int


class StatementView(View):
    """A statement that a unit of work ran on a data source. `rows` and `bytes` of its result are null if it failed; `error`
    is the code of its error."""

    source: str
    sql: str
    """The statement."""
    rows: int | None
    bytes: int | None
    elapsed_ms: int
    truncated: bool
    """Whether there were more rows or bytes than were returned."""
    error: str | None
    """Why it failed."""


class Spent(View):
    """Usage of models. `costUsd` is the cost of calls with a known price, or null if there are none; `unpricedCalls`
    used tokens without a known price."""

    model_calls: int
    usage: Usage
    cost_usd: float | None
    unpriced_calls: int


class KeptOut(View):
    """Bytes of references, summed over creations, resolves and dispatches, or of artifacts, summed over the calls
    that received their records. Models read `promptBytes` of `sizeBytes`; `keptOutBytes` stayed out of prompts."""

    uses: int
    """How many uses there were."""
    size_bytes: int
    prompt_bytes: int
    kept_out_bytes: int
    """How many bytes stayed out of prompts."""


class KeptOutEstimate(View):
    """An estimate of the cost of `keptOutBytes` in prompts, as if each byte had been sent once. A byte counts as much
    as the average byte of the same query's prompts, in tokens and in dollars. `tokensFromBytes` and `costFromBytes`
    are the bytes that the estimate covers; all others belong to queries without a measured or priced call."""

    tokens: int | None
    tokens_from_bytes: int
    """How many bytes the tokens are estimated from."""
    cost_usd: float | None
    cost_from_bytes: int
    """How many bytes the cost is estimated from."""


class EstimatedKeptOut(KeptOut):
    """The same, with an estimate in tokens and dollars."""

    estimate: KeptOutEstimate
    """What it may have saved."""


class Rollup(Spent):
    """The usage of a record and everything below it, each record once."""

    references: KeptOut
    """What references kept out of prompts."""


class WorkError(ErrorInfo):
    """Why work failed. `writtenTo` are the paths that an action's error went to, which handles it."""

    written_to: list[str] | None = None
    """The paths that the error was written to."""


class WorkSummary(View):
    """A unit of work. Model calls also have their model, usage and cost; `priceDate` is the date of the price, from
    `priceTable`. `waiting`: its query waits or is queued."""

    id: str
    """The id of the work record."""
    parent_id: str | None
    kind: WorkKind
    """What kind of work it is."""
    name: str
    """The name of the agent, tool, model or plan at work."""
    agent: str
    query_id: str | None
    thread_id: str
    status: WorkStatus
    started_at: datetime
    ended_at: datetime | None
    duration_ms: int | None
    attempts: int
    model: str | None = None
    prompt_cache_key: str | None = None
    usage: Usage | None = None
    cost_usd: float | None = None
    price_date: Annotated[str, Field(json_schema_extra={"format": "date"})] | None = None
    price_table: str | None = None
    tool_invocation_id: str | None = None
    error: WorkError | None = None
    """Why it failed."""


class WorkView(WorkSummary):
    """A unit of work: what it was given, what came of it, and what it did with references."""

    references: list[ReferenceUse] | None = None
    """What it did with references."""
    statement: StatementView | None = None
    """The statement that it ran on a source."""
    input: JsonValue = None
    """What it was given."""
    output: JsonValue = None
    """What came of it."""


class WorkItem(WorkView):
    """A unit of work in the list of its query. `bodiesLeftOut`: the list has no room for its `input`, `output` and
    `error`; `GET /work-records/{id}` has them."""

    bodies_left_out: Literal[True] | None = None
    """True if the list has no room for its `input`, `output` and `error`."""


class WorkList(WholeList):
    items: list[WorkItem]


class WorkNode(WorkSummary):
    """A unit of work in a tree, without its `input` and `output`, with what it and everything below it used."""

    rollup: Rollup


class WorkRecord(WorkView):
    """A unit of work and what it and everything below it used. With `tree=true`, `below` has all that is below it."""

    rollup: Rollup
    below: Annotated[
        list[WorkNode] | None, Field(description="Parents before their children, siblings oldest first.")
    ] = None


class WorkPage(CursorPage):
    """A page of work records. It may have fewer than `limit`, or none, although there are more: `nextCursor` tells."""

    items: list[WorkSummary]


class Usages(Spent):
    """Usage of models, the part that was in vain (`failed`: the call, its run, a run above it, or the query failed or
    was canceled), and the bytes that references and artifacts kept out of prompts."""

    failed: Spent
    """What was used in vain."""
    references: EstimatedKeptOut
    """What references kept out of prompts."""
    artifacts: EstimatedKeptOut
    """What artifacts kept out of prompts."""


class UsageGroup(Usages):
    """The usage of one query, thread, agent, model, artifact, channel, runtime or day. `key` null: what belongs to none. A model
    call belongs to the next artifact that its run published, or the nearest run above it that published any. With
    `groupBy=revision`, `key` is an artifact, `revision` its place in the chain of `replaces`, counted from 1, and
    `firstArtifactId` the artifact with which this chain begins."""

    key: str | None
    """The value that the group is about; null for what belongs to none."""
    first_artifact_id: str | None = None
    revision: int | None = None


class UsageReport(View):
    """Usage of what began in the range, in groups. `totals` are those of the whole range, on every page."""

    group_by: GroupBy
    """What the groups are about."""
    from_: Annotated[datetime, Field(alias="from")]
    """The beginning of the range."""
    to: datetime
    """The end of the range."""
    totals: Usages
    """The sums of the whole range."""
    items: list[UsageGroup]
    """The groups of the page."""
    next_cursor: Annotated[str | None, Field(description="Send it as `cursor`; null on the last page.")]
