"""Bodies of the routes of queries."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from app.queries.models import Submission
from app.tenancy.request_body import Body

YEAR_MS = 366 * 24 * 3600 * 1000


class Limits(Body):
    """The limits of the query; the runtime's limits apply to omitted ones."""

    max_turns: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """How many model turns it may take."""
    max_tokens: Annotated[int, Field(ge=1, le=10**12)] | None = None
    """How many tokens it may use, in and out."""
    max_cost_usd: Annotated[float, Field(gt=0, le=10**9)] | None = None
    """The most that the query may cost, in US dollars."""
    max_duration_ms: Annotated[int, Field(ge=1, le=YEAR_MS)] | None = None
    """How long it may be at work, in milliseconds; waiting does not count."""

    def wire(self) -> dict[str, Any]:
        return self.model_dump(by_alias=True, exclude_none=True)


class Resume(Body):
    """New limits for a query that stopped at one."""

    limits: Limits
    """The limits that hold from now on."""


class MakeThread(Body):
    thread_key: Annotated[str, Field(min_length=1, max_length=200)] | None = None


class ForkThread(Body):
    """Where the new thread begins: after this write of the state; without it, as the state is."""

    at: Annotated[int, Field(ge=0, le=2**53)] | None = None
    """The number of the write after which the new thread begins; unset, the state as it is."""


class SubmitQuery(Body):
    """Starts a query. Name the runtime by id, or by name for its newest version (a thread keeps the version it
    began with); name the thread by id, or by a key of your own that makes it on first use."""

    prompt: Annotated[str, Field(max_length=1_000_000)]
    runtime_id: Annotated[str, Field(max_length=100)] | None = None
    """The id of the version of the runtime; or name it by `runtime`."""
    runtime: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    thread_id: Annotated[str, Field(max_length=100)] | None = None
    """The thread to continue; or name it by `threadKey`. Unset, a new one."""
    thread_key: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    agent: Annotated[str, Field(max_length=100)] | None = None
    """The agent to ask; unset, the coordinator."""
    inputs: dict[str, Any] | None = None
    data: dict[str, Any] | None = None
    """Data of the query, which variables read."""
    approval_expires_in_ms: Annotated[int, Field(ge=1, le=YEAR_MS)] | None = None
    metadata: dict[str, Any] | None = None
    limits: Limits | None = None
    """What the query may use; unset, what the runtime says."""
    if_busy: Literal["queue", "reject", "interrupt"] = "queue"

    @model_validator(mode="after")
    def _one_name_each(self) -> SubmitQuery:
        if self.runtime_id is not None and self.runtime is not None:
            raise ValueError("name the runtime by runtimeId or by runtime, not both")
        if self.thread_id is not None and self.thread_key is not None:
            raise ValueError("name the thread by threadId or by threadKey, not both")
        return self

    def submission(self) -> Submission:
        return Submission(
            self.prompt,
            self.runtime_id,
            self.runtime,
            self.thread_id,
            self.thread_key,
            self.agent,
            self.inputs,
            self.data,
            self.approval_expires_in_ms,
            self.metadata,
            self.limits.wire() if self.limits else None,
            self.if_busy,
        )
