"""Responses of the routes of runtimes."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from plangate.spec.approvals import Origin
from plangate.spec.models import ApprovalRule, RuntimeSpec
from pydantic import Field

from app.base.errors import MAX_LISTED_ERRORS
from app.base.responses import CursorPage, View
from app.events import JsonObject


class RuntimeSummary(View):
    """A version of a line `name`. `digest` is the SHA-256 of the spec's canonical bytes in hex."""

    id: str
    """The id of the version."""
    name: str
    """The name of the runtime."""
    version: int
    digest: str
    created_at: datetime
    retired_at: datetime | None
    """When it was retired; null if it was not."""


class RuntimeView(RuntimeSummary):
    """A version with its spec as it was assembled."""

    spec: RuntimeSpec
    """The spec as it was assembled."""


class RegisteredRuntime(RuntimeView):
    """A registered version. `signing_secret` is present only in the response that created it."""

    signing_secret: str | None = None


class SigningSecret(View):
    """The secret with which receivers verify calls of every version of `runtime_name`. Shown once."""

    runtime_name: str
    signing_secret: str


class RuntimePage(CursorPage):
    items: list[RuntimeSummary]


class SpecProblem(View):
    """One thing wrong with a spec: where (a JSON pointer) and what."""

    pointer: str
    message: str


class Validation(View):
    """The result of a validation: the assembled spec, or what is wrong with the spec."""

    valid: bool
    """Whether the spec can be registered."""
    errors: Annotated[list[SpecProblem], Field(max_length=MAX_LISTED_ERRORS, description="The first errors.")]
    has_more_errors: Annotated[bool, Field(description="Whether there are more errors than are listed.")]
    spec: RuntimeSpec | None = None
    """The assembled spec, if it is valid."""


class AssembledPrompt(View):
    """The system prompt of an agent as models get it. `cacheKey` is its SHA-256 in hex."""

    agent: str
    text: str
    cache_key: str
    """The SHA-256 of the prompt, in hex."""


class AgentTool(View):
    """A tool that an agent may call. `approval` is the rule in force, `approvalOrigin` where it was written;
    `floor` where the operator's floor made it stricter."""

    name: str
    """What the model calls it."""
    description: str
    """The description that the model reads."""
    input_schema: JsonObject
    """The JSON Schema of its arguments."""
    transport: Literal["builtin", "http", "client", "mcp", "python"]
    """Where it runs."""
    toolkit: str | None = None
    """The toolkit that it is from."""
    approval: ApprovalRule
    """The rule that is in force."""
    approval_origin: Origin
    """Where the rule was written."""


class AgentToolList(View):
    agent: str
    tools: list[AgentTool]
    """The tools that the agent may call."""
