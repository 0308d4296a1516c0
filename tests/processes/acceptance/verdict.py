"""Invariants of an ended query, checked from outside: readers, database and ledgers."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from tests.processes.acceptance.house import House, Ledger
from tests.processes.acceptance.reader import TERMINAL, Event, Frame, Reader

# What is told once in the life of the thing it tells of, and what that is.
ONCE = {
    "approval-required": lambda e: e["data"]["id"],
    "approval-decision": lambda e: e["data"]["id"],
    "tool-agent": lambda e: (e["workId"], e["state"]),
    "data-tool-agent": lambda e: e["workId"],
    "tool-invocation": lambda e: (e["workId"], e["state"]),
    "work-start": lambda e: e["data"]["id"],
    "work-end": lambda e: e["data"]["id"],
    "step-start": lambda e: e["workId"],
}


def judge(house: House, reader: Reader, ledger: Ledger | None = None, *, end: str = "finish") -> None:
    """Everything that is promised of the query that `reader` followed to its end."""
    reader.wait_end()
    last = reader.events[-1]
    assert last["type"] == end, last
    contiguous(reader.frames)
    readers_agree(house, reader)
    told_once(reader.events)
    statuses_follow(reader.events)
    texts_are_whole(house, reader)
    database_is_settled(house, reader.query_id)
    if ledger is not None:
        nothing_twice(ledger, reader.query_id)


def contiguous(frames: list[Frame]) -> None:
    """The client missed and repeated nothing; one terminal event, the last."""
    assert [f.event["seq"] for f in frames] == list(range(1, len(frames) + 1))
    assert len({f.id for f in frames}) == len(frames)
    assert [f.type for f in frames if f.type in TERMINAL] == [frames[-1].type]


def readers_agree(house: House, reader: Reader) -> None:
    """Listed, replayed and resumed, the events are the bytes that the live reader got."""
    listed, after = b"", ""
    while True:
        answer = house.http.get(f"/queries/{reader.query_id}/events?limit=500{after}")
        page = answer.json()
        count = len(page["events"])
        start = len(b'{"events":[')
        listed += answer.content[start : answer.content.rindex(b'],"nextCursor"')] + b"," * bool(count)
        if page["done"]:
            break
        after = f"&after={page['nextCursor']}"
    assert listed == b"".join(f.data + b"," for f in reader.frames)
    told = [(f.id, f.type, f.data) for f in reader.frames]
    for seen in (0, len(told) // 2, len(told) - 1):
        again = house.follow(reader.query_id, told[seen - 1][0] if seen else None)
        again.wait_end()
        assert [(f.id, f.type, f.data) for f in again.frames] == told[seen:]
        again.close()


def told_once(events: list[Event]) -> None:
    told = Counter((e["type"], ONCE[e["type"]](e)) for e in events if e["type"] in ONCE)
    twice = {what: n for what, n in told.items() if n > 1}
    assert not twice, str(twice)


def statuses_follow(events: list[Event]) -> None:
    """Every change starts from where the one before ended."""
    at: dict[Any, Any] = defaultdict(lambda: None)
    for event in events:
        change: Any
        match event["type"]:
            case "query-status":
                key, change = "query", event
            case "action-status-change":
                change = event["data"]
                key = (change["planId"], change["index"])
                at[key] = at[key] or "pending"
            case _:
                continue
        assert change["from"] == at[key], f"{key} was {at[key]}: {event}"
        at[key] = change["to"]


def texts_are_whole(house: House, reader: Reader) -> None:
    """The deltas of each model call after its last retry, joined, are its text."""
    joined: dict[str, str] = defaultdict(str)
    for event in reader.events:
        if event["type"] == "step-retry":
            joined[event["workId"]] = ""
        elif event["type"] == "text":
            joined[event["workId"]] += event["text"]
    for work in house.get(f"/queries/{reader.query_id}/work")["items"]:
        if work["kind"] == "model_call" and work["status"] == "succeeded":
            blocks = work["output"]["blocks"]
            assert joined[work["id"]] == "".join(b["text"] for b in blocks if b["type"] == "text")


UNSETTLED = """
SELECT 'work still open' AS what, w.id, w.kind AS detail FROM work_records w WHERE query_id = $1 AND ended_at IS NULL
UNION ALL
SELECT 'call still open', work_id, name FROM outgoing_calls WHERE query_id = $1 AND status IN ('open', 'claimed')
UNION ALL
SELECT 'gate still open', id, target FROM approvals WHERE query_id = $1 AND status = 'pending'
UNION ALL
SELECT 'lease still held', id, lease_owner FROM queries WHERE id = $1 AND (lease_owner IS NOT NULL OR ended_at IS NULL)
UNION ALL
SELECT 'plan still executing', id, status FROM plans WHERE query_id = $1 AND status NOT IN ('executed', 'failed')
UNION ALL
SELECT 'action not over', a.work_id, a.status FROM plan_actions a JOIN plans p ON p.id = a.plan_id
 WHERE p.query_id = $1 AND a.status IN ('pending', 'dispatched', 'unknown')
UNION ALL
SELECT 'offered twice', min(work_id), count(*)::text FROM outgoing_calls WHERE query_id = $1 AND purpose = 'action'
 GROUP BY convert_from(request, 'UTF8')::jsonb->>'idempotencyKey' HAVING count(*) > 1
UNION ALL
SELECT 'journal not contiguous', q.id, count(*) || ' of ' || q.next_seq - 1 FROM queries q JOIN events e ON e.query_id = q.id
 WHERE q.id = $1 GROUP BY q.id, q.next_seq HAVING count(*) <> q.next_seq - 1 OR max(e.seq) <> q.next_seq - 1
"""


def database_is_settled(house: House, query_id: str) -> None:
    found = house.sql(UNSETTLED, query_id)
    assert not found, str(found)


def nothing_twice(ledger: Ledger, query_id: str) -> None:
    """No key took effect twice, and no result was adopted twice."""
    taken = Counter(line["key"] for line in ledger.lines("ledger", query_id))
    assert taken and max(taken.values()) == 1
    adopted = Counter(
        line["workId"] for line in ledger.lines("answers", query_id) if line.get("body", {}).get("adopted")
    )
    arrived = {line["workId"] for line in ledger.lines("arrivals", query_id)}
    assert set(adopted) <= arrived


def arrivals(ledger: Ledger, query_id: str) -> Counter[str]:
    """How often each key came to the user's processes."""
    return Counter(line["key"] for line in ledger.lines("arrivals", query_id))
