"""docs/lifecycles.md, printed from the tables in `states.py`: `python -m tests.pure.docs.lifecycles_page` writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from app.approvals.states import APPROVAL_LIFE
from app.base.lifecycle import Lifecycle
from app.plans.states import ACTION_LIFE, PLAN_LIFE
from app.queries.states import QUERY_LIFE

PAGE = Path(__file__).parents[3] / "docs" / "lifecycles.md"
INTRODUCTION = """# Lifecycles

What may follow what. Each diagram is printed from the table by which the code refuses all other steps. Every
step is written in one transaction with its event.
"""
NOTES: tuple[tuple[Lifecycle[Any], str], ...] = (
    (
        QUERY_LIFE,
        """A thread has one query that is `running` or `waiting`; the others are `queued`, in order. `waiting` has a
`reason` (`approval`, `client_call`, `outcome_unknown`, `limit_reached`) and holds no process. A query that
may go on is `running`, also while no process has taken it up yet.""",
    ),
    (
        PLAN_LIFE,
        """A draft may be stored again and then has the next revision. A rejected revision stays a draft and is not
presented again. A plan that was ever approved runs once; executing it again makes a copy. Events show
`pending_approval` while a gate is open; it is never stored.""",
    ),
    (
        ACTION_LIFE,
        """`dispatched` is on record before anybody can take the action. `unknown` means that somebody took it and was
lost: only a person settles it, as `succeeded`, as `failed`, or as a retry, which puts it back to `pending`. A
retry that is not sent any more is `unknown` again.""",
    ),
    (
        APPROVAL_LIFE,
        """One decision wins, and is final. `expired` is by the database's clock; `cancelled` is because the query
ended. With a quorum an approval stays `pending` until enough principals approved, or one did not.""",
    ),
)


def page() -> str:
    parts = [INTRODUCTION]
    for life, notes in NOTES:
        parts.append(f"## {life.name.capitalize()}\n\n{notes}\n\n```mermaid\n{life.mermaid()}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
