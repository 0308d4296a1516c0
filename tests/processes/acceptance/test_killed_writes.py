"""kill -9 between the steps of writing and publishing a file: each is done once and completely."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import asyncpg
import httpx
import pytest

from tests.processes.acceptance import specs
from tests.processes.acceptance.house import House, eventually
from tests.processes.acceptance.verdict import judge

FIRST, SECOND = b"one two", b"one three"
KEY = 77
"""Of the lock at which a statement waits."""
STOP = """
CREATE FUNCTION stop() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM pg_advisory_xact_lock({key}); RETURN NEW; END $$;
CREATE TRIGGER stop {when} ON {table} FOR EACH ROW WHEN ({condition}) EXECUTE FUNCTION stop();
"""
WAITING = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objid = $1 AND NOT granted"


def digest(data: bytes) -> str:
    return f"NEW.digest = '\\x{hashlib.sha256(data).hexdigest()}'"


DONE = "NEW.name = '{}' AND NEW.status = 'succeeded'"
# The steps, by the row that each is about to make.
POINTS = {
    "write, before its body is kept": ("blobs", "BEFORE INSERT", digest(FIRST)),
    "write, before its version": ("workspace_versions", "BEFORE INSERT", digest(FIRST)),
    "write, before the file": ("workspace_files", "BEFORE INSERT", "NEW.version = 1"),
    "write, before its result": ("work_records", "BEFORE UPDATE", DONE.format("write")),
    "edit, before its body is kept": ("blobs", "BEFORE INSERT", digest(SECOND)),
    "edit, before its version": ("workspace_versions", "BEFORE INSERT", digest(SECOND)),
    "edit, before the file": ("workspace_files", "BEFORE UPDATE", "NEW.version = 2"),
    "edit, before its result": ("work_records", "BEFORE UPDATE", DONE.format("edit")),
    "publish, before the chain": ("artifact_chains", "BEFORE INSERT", "true"),
    "publish, before the record": ("artifacts", "BEFORE INSERT", "true"),
    "publish, before the tags": ("artifact_tags", "BEFORE INSERT", "true"),
    "publish, before the event": ("events", "BEFORE INSERT", "NEW.type = 'artifact-published'"),
    "publish, before its result": ("work_records", "BEFORE UPDATE", DONE.format("artifact_publish")),
}
PATH = "notes/a.md"
STEPS = (
    {"tool": "write", "args": {"path": PATH, "content": FIRST.decode()}},
    {"tool": "edit", "args": {"path": PATH, "old": "two", "new": "three"}},
    {"tool": "artifact_publish", "args": {"channel": "design", "path": PATH, "tags": ["new"]}},
)


def most_are_long(points: Iterable[str]) -> list[Any]:
    """Each point as a parameter, all but the last marked as long."""
    *others, last = points
    return [*(pytest.param(point, marks=pytest.mark.long) for point in others), pytest.param(last)]


class Step:
    """A step at which every statement that comes to it waits."""

    def __init__(self, house: House, point: tuple[str, str, str]) -> None:
        self._table, when, condition = point
        self._runner = asyncio.Runner()
        self._owner: asyncpg.Connection = self._runner.run(house.connect())
        self._run("SELECT pg_advisory_lock($1)", KEY)
        self._run(STOP.format(key=KEY, when=when, table=self._table, condition=condition))

    def _run(self, statement: str, *args: object) -> list[Any]:
        if args:
            return list(self._runner.run(self._owner.fetch(statement, *args)))
        self._runner.run(self._owner.execute(statement))
        return []

    def reached(self) -> bool:
        return bool(self._run(WAITING, KEY))

    def close(self) -> None:
        """Ends who waits, so that nothing of a process that was killed is done after all, and lets everybody pass."""
        self._run(f"SELECT pg_terminate_backend(pid) FROM ({WAITING}) w", KEY)
        eventually(lambda: not self.reached(), "nobody waits")
        self._run(f"DROP TRIGGER stop ON {self._table}; DROP FUNCTION stop()")
        self._runner.run(self._owner.close())
        self._runner.close()


def counts(house: House, thread_id: str) -> dict[str, int]:
    """How many rows each table has of a thread."""
    tables = ("workspace_versions", "workspace_files", "artifact_chains", "artifacts")
    return {
        table: house.sql(f"SELECT count(*) AS n FROM {table} WHERE thread_id = $1", thread_id)[0]["n"]
        for table in tables
    }


def nothing_in_part(house: House, thread_id: str) -> None:
    """What was written has its file and its count; what was published stands in the chain, with its tags."""
    found = counts(house, thread_id)
    assert found["workspace_files"] == min(found["workspace_versions"], 1)
    assert found["artifacts"] == found["artifact_chains"]
    (row,) = house.sql(
        "SELECT (SELECT count(*) FROM workspaces w WHERE w.thread_id = $1 AND w.files = 1) AS counted,"
        " (SELECT count(*) FROM artifact_tags t JOIN artifacts a ON a.id = t.artifact_id WHERE a.thread_id = $1) AS tags,"
        " (SELECT count(*) FROM events e JOIN queries q ON q.id = e.query_id WHERE q.thread_id = $1"
        "   AND e.type = 'artifact-published') AS told",
        thread_id,
    )
    assert row["counted"] == found["workspace_files"]
    assert row["tags"] == found["artifacts"]


def whole(house: House, thread_id: str, versions: list[bytes]) -> dict[str, Any]:
    """Each version once, its body too, and one artifact of the last; gives that."""
    rows = house.sql(
        "SELECT version, digest FROM workspace_versions WHERE thread_id = $1 ORDER BY version", thread_id
    )
    made = [hashlib.sha256(data).digest() for data in versions]
    assert [(r["version"], r["digest"]) for r in rows] == list(enumerate(made, 1))
    (file,) = house.get(f"/threads/{thread_id}/files")["items"]
    at = f"/threads/{thread_id}/files/{file['path']}"
    for number, data in enumerate(versions, 1):
        assert house.http.get(f"{at}?version={number}").content == data
    (record,) = house.get(f"/artifacts?threadId={thread_id}&includeSuperseded=true")["items"]
    assert (record["digest"]["value"], record["targetChanged"]) == (made[-1].hex(), False)
    assert house.http.get(f"/artifacts/{record['id']}/content").content == versions[-1]
    nothing_in_part(house, thread_id)
    found: dict[str, Any] = record
    return found


@pytest.mark.parametrize("point", most_are_long(POINTS))
def test_an_agent_writes_and_publishes_once(house: House, point: str) -> None:
    runtime = house.register(specs.author())
    step = Step(house, POINTS[point])
    try:
        reader = house.start(runtime, {"script": STEPS})
        eventually(step.reached, "the step is reached")
        house.kill_service()
    finally:
        step.close()
    thread_id = house.sql("SELECT thread_id FROM queries WHERE id = $1", reader.query_id)[0]["thread_id"]
    nothing_in_part(house, thread_id)
    house.serve()
    judge(house, reader)
    record = whole(house, thread_id, [FIRST, SECOND])
    told = [e["data"] for e in reader.events if e["type"] == "artifact-published"]
    assert [t["id"] for t in told] == [record["id"]]
    calls = [e for e in reader.events if e["type"] == "tool-invocation" and e["state"] == "result"]
    assert [c["toolName"] for c in calls] == ["write", "edit", "artifact_publish"]


UPLOAD = {
    "before its body is kept": ("blobs", "BEFORE INSERT", digest(FIRST)),
    "before its version": ("workspace_versions", "BEFORE INSERT", digest(FIRST)),
    "before the record": ("artifacts", "BEFORE INSERT", "true"),
    "before the tags": ("artifact_tags", "BEFORE INSERT", "true"),
}


@pytest.mark.parametrize("point", most_are_long(UPLOAD))
def test_a_repeated_upload_publishes_once(house: House, point: str) -> None:
    thread_id = house.post("/threads", {}, 201)["id"]
    at = f"/artifacts/handoff/a.md?threadId={thread_id}&tag=new"

    def upload() -> httpx.Response:
        return httpx.put(
            house.url + at, content=FIRST, headers={"Authorization": f"Bearer {house.key}"}, timeout=30
        )

    step = Step(house, UPLOAD[point])
    with ThreadPoolExecutor(1) as beside:
        try:
            cut = beside.submit(upload)
            eventually(step.reached, "the step is reached")
            house.kill_service()
            with pytest.raises(httpx.TransportError):
                cut.result()
        finally:
            step.close()
    assert set(counts(house, thread_id).values()) == {0}
    house.serve()
    made = upload()
    assert made.status_code == 201, made.text
    house.restart()  # after it was answered
    again = upload()
    assert (again.status_code, again.json()) == (200, made.json())
    assert whole(house, thread_id, [FIRST]) == made.json()
