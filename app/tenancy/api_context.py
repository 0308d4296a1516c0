"""What routes need. Composition creates it in every process, and loads no web framework for it."""

from __future__ import annotations

from dataclasses import dataclass, field

from app.base.cursors import CursorSigner
from app.base.json.parsing import Parser
from app.base.postgres.database import Database
from app.base.public_url import PublicUrl
from app.tenancy.service import Tenancy


@dataclass(frozen=True, slots=True)
class ApiContext:
    """The services that routes use; one per application, at `app.state.context`."""

    db: Database
    tenancy: Tenancy
    signer: CursorSigner
    parser: Parser = field(default_factory=Parser)
    public_url: PublicUrl | None = None
