"""Responses of the routes of keys and secrets."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Literal

from pydantic import Field

from app.base.responses import CursorPage, View
from app.events import JsonObject
from app.tenancy.models import SCOPES

Scope = Annotated[str, Field(json_schema_extra={"enum": list(SCOPES)})]


class KeyView(View):
    """An API key, without its text. `tools` null may serve any."""

    id: str
    """The id of the key."""
    principal: str
    scopes: list[Scope]
    tools: list[str] | None
    """The tools that the key may serve; null is any."""
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None


class NewKey(KeyView):
    """A key just made. `key` is its text, shown this once."""

    key: str
    """The text of the key, shown once."""


MAX_COUNTED: Final = 1_000
"""Queries of a status, or approvals, of one tenant. A page has up to 500 tenants, with four counts each."""


class TenantView(View):
    """A tenant, its limits and what it uses. Counts end at 1,000; `/metrics` has whole ones of the installation."""

    id: str
    """The id of the tenant."""
    created_at: datetime
    limits: JsonObject
    """The limits that it has; one that is missing is unlimited."""
    blob_bytes: int
    """The size of the bodies of its files and artifacts, which the limit `bytes` is for. Values in the database, such as
    references and state, are not counted."""
    queued_queries: int
    """How many of its queries are queued, up to 1,000."""
    running_queries: int
    """How many of its queries run, up to 1,000."""
    waiting_queries: int
    """How many of its queries wait, up to 1,000."""
    pending_approvals: int
    """How many of its approvals are pending, up to 1,000."""


class TenantPage(CursorPage):
    items: list[TenantView]


class KeyPage(CursorPage):
    items: list[KeyView]


class KeyRevoked(View):
    id: str
    """The id of the key."""
    revoked: Literal[True]
    """Always true."""


class SecretView(View):
    """A secret by its name; its value is never shown."""

    name: str
    """The name of the secret."""
    created_at: datetime
    updated_at: datetime


class SecretPage(View):
    """A page of secrets by name, in alphabetical order."""

    items: list[SecretView]
    next_cursor: Annotated[str | None, Field(description="Send it as `cursor`; null on the last page.")]


class SecretDeleted(View):
    name: str
    """The name of the secret."""
    deleted: Literal[True]


class WhoAmI(View):
    """The identity and permissions of a request. `tools` null allows every tool."""

    principal: str
    tenant: str
    scopes: list[Scope]
    tools: list[str] | None
    """The tools that the key may serve; null is any."""
    version: Annotated[str, Field(description="The version of the service.")]
    session_id: Annotated[str | None, Field(description="The session of the request, null with a key.")]
    expires_at: Annotated[
        datetime | None, Field(description="When the key or the session ends, null for a key without an end.")
    ]
    operator: bool
    """Whether this is the operator of the installation, who may list its tenants and processes."""


class Ticket(View):
    """A ticket just created. `ticket` is its text, shown this once; the page at `url` starts a session with it."""

    id: str
    """The id of the ticket."""
    ticket: str
    """The text of the ticket, shown once."""
    url: Annotated[str, Field(description="A page of the service, with the ticket in the fragment.")]
    expires_at: datetime


class SessionEnded(View):
    id: str
    """The id of the session."""
    ended: Literal[True]
    """Always true."""
