"""docs/lifecycles.md and the triggers in migrations/access, printed from the tables in `states.py`.

`python -m tests.pure.docs.lifecycles_page` writes both.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from app.approvals.states import APPROVAL_LIFE
from app.base.lifecycle import Lifecycle
from app.engine.states import WORK_LIFE
from app.plans.states import ACTION_LIFE, PLAN_LIFE
from app.queries.states import QUERY_LIFE
from app.tools.states import CALL_LIFE

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "lifecycles.md"
TRIGGERS = ROOT / "migrations" / "access" / "4_lifecycles.sql"
TABLES: tuple[tuple[Lifecycle[Any], str], ...] = (
    (QUERY_LIFE, "queries"),
    (PLAN_LIFE, "plans"),
    (ACTION_LIFE, "plan_actions"),
    (APPROVAL_LIFE, "approvals"),
    (CALL_LIFE, "outgoing_calls"),
    (WORK_LIFE, "work_records"),
)
"""Each lifecycle and the table of the database whose column `status` it governs."""
INTRODUCTION = """# Lifecycles

Each diagram is printed from a transition table in the code. The database rejects every other transition,
with a trigger that is printed from the same table. A transition and its event are written in one
transaction.
"""
NOTES: tuple[tuple[Lifecycle[Any], str], ...] = (
    (
        QUERY_LIFE,
        """A thread has at most one query that is `running` or `waiting`; the others are `queued`, in order. A `waiting`
query has a `reason` (`approval`, `client_call`, `outcome_unknown`, `limit_reached`) and holds no process. A
query that can continue is `running`, even before a process has claimed it.""",
    ),
    (
        PLAN_LIFE,
        """Storing a draft again makes its next revision. A rejected revision stays a draft and cannot be presented
again. A plan that was ever approved runs once; executing it again makes a copy. Events show
`pending_approval` while an approval is pending; this status is never stored.""",
    ),
    (
        ACTION_LIFE,
        """`dispatched` is recorded before anyone can claim the action. `unknown` means that the claimant was lost: only
a person settles it, as `succeeded`, as `failed`, or as a retry, which makes it `pending` again. A retry that
can no longer be sent is `unknown` again.""",
    ),
    (
        APPROVAL_LIFE,
        """The first decision wins and is final. `expired` follows the database's clock; `cancelled` means that the
query ended. With a quorum, an approval stays `pending` until enough principals approve or one rejects.""",
    ),
    (
        CALL_LIFE,
        """A call of a tool or an action that leaves the service. `open` waits for a claim. If a claim expires, the call
is `open` again if it may be repeated, else `unknown`. A `withdrawn` call was never handed out.""",
    ),
    (
        WORK_LIFE,
        """A work record opens as `running`. Reads show `waiting` while its query waits.""",
    ),
)


def triggers() -> str:
    """Return the SQL of the triggers."""
    head = """-- The transitions that each lifecycle allows; every other one is rejected. Printed from the tables in `states.py`:
-- python -m tests.pure.docs.lifecycles_page
CREATE OR REPLACE FUNCTION reject_transition() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'A % does not become % after %', TG_ARGV[0], NEW.status, OLD.status USING ERRCODE = 'check_violation';
END $$;
"""
    return head + "".join(life.trigger(table) for life, table in TABLES)


def page() -> str:
    parts = [INTRODUCTION]
    for life, notes in NOTES:
        parts.append(f"## {life.name.capitalize()}\n\n{notes}\n\n```mermaid\n{life.mermaid()}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
    TRIGGERS.write_text(triggers(), "utf-8")
