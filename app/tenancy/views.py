"""Responses of the routes of keys and secrets."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from app.base.responses import CursorPage, View
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
    """Who a request is, and what it may do. `tools` null may serve any."""

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
