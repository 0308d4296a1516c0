"""The database rejects every transition that a lifecycle does not allow, in every statement."""

from __future__ import annotations

import re
from typing import Any

import asyncpg
import pytest

from app.base.lifecycle import Lifecycle
from tests.pure.docs.lifecycles_page import TABLES

parametrize_lifecycles = pytest.mark.parametrize("life, table", TABLES, ids=[table for _, table in TABLES])


@parametrize_lifecycles
async def test_a_lifecycle_rejects_every_other_transition(
    owner: asyncpg.Connection, life: Lifecycle[Any], table: str
) -> None:
    """Try each pair of statuses on a table that has the trigger of the real one, and nothing else."""
    async with owner.transaction():
        await owner.execute("CREATE TEMP TABLE tried (status text NOT NULL) ON COMMIT DROP")
        await owner.execute(life.trigger("tried"))
        real, copy = [
            await owner.fetchval("SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgrelid = $1::regclass"
                                 " AND tgname = 'lifecycle' AND tgenabled = 'O'", name)
            for name in (table, "tried")
        ]  # fmt: skip
        assert re.sub(rf"\bON \S*{table} ", "", real) == re.sub(r"\bON \S*tried ", "", copy)
        done = set()
        for current in life.transitions:
            for to in life.transitions:
                try:
                    async with owner.transaction():
                        await owner.execute("DELETE FROM tried")
                        await owner.execute("INSERT INTO tried VALUES ($1)", current)
                        await owner.execute("UPDATE tried SET status = $1", to)
                        done.add((current, to))
                except asyncpg.CheckViolationError as error:
                    assert str(error) == f"A {life.name} does not become {to} after {current}"
        allowed = {(current, to) for current, following in life.transitions.items() for to in following}
        assert done == allowed | {(state, state) for state in life.transitions}


@parametrize_lifecycles
async def test_a_table_has_exactly_the_statuses_of_its_lifecycle(
    owner: asyncpg.Connection, life: Lifecycle[Any], table: str
) -> None:
    checks = await owner.fetch(
        "SELECT pg_get_constraintdef(oid) AS text FROM pg_constraint WHERE conrelid = $1::regclass AND contype = 'c'",
        table,
    )
    listed = [
        set(re.findall(r"'(\w+)'::text", row["text"])) for row in checks if "(status = ANY" in row["text"]
    ]
    assert set(life.transitions) in listed
