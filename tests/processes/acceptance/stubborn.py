"""Users who retry with the same key, follow, approve, and settle unknown outcomes."""

from __future__ import annotations

import json
import time
import uuid
from typing import Any

import httpx

from tests.processes.acceptance import specs
from tests.processes.acceptance.house import House, Ledger
from tests.processes.acceptance.reader import PATIENCE_S, Reader
from tests.processes.acceptance.verdict import arrivals, judge


def plan_and_approve(house: House, runtime: str) -> Reader:
    key = uuid.uuid4().hex
    body = {
        "runtimeId": runtime,
        "prompt": json.dumps(specs.plan_and_execute(3, specs.LOOK_UP)),
        "threadKey": key,
    }
    accepted = insist(house, "/queries", body, key)
    reader = house.follow(accepted["id"])
    asked = reader.wait_type("approval-required").event["data"]
    insist(house, f"/approvals/{asked['id']}", {"decision": "approve", "digest": asked["digest"]}, key)
    return reader


def insist(house: House, path: str, body: dict[str, Any], key: str) -> Any:
    """The answer, however often it takes; it is the same one."""
    with httpx.Client(
        base_url=house.url, headers={**house.http.headers, "Idempotency-Key": key}, timeout=30
    ) as http:
        while True:
            try:
                answer = http.post(path, json=body)
            except httpx.HTTPError:
                time.sleep(0.05)
                continue
            if answer.is_success:
                return answer.json()
            assert answer.status_code in (409, 503), answer.text
            time.sleep(0.2)


def check(house: House, reader: Reader, ledger: Ledger) -> None:
    settle(house, reader)
    judge(house, reader, ledger)
    assert set(arrivals(ledger, reader.query_id).values()) == {1}


def settle(house: House, reader: Reader) -> int:
    """Follows a query to its end. A claim may lapse while the service is away; then a person looks into the ledger,
    which has the action, and says so. How often that was needed."""
    settled, deadline = 0, time.monotonic() + PATIENCE_S
    while not reader.over:
        assert time.monotonic() < deadline, reader.tail()
        if house.get(f"/queries/{reader.query_id}")["reason"] == "outcome_unknown":
            shown = reader.wait_type("plan-status-change").event["data"]["planId"]
            for action in house.get(f"/plans/{shown}/actions")["items"]:
                if action["status"] == "unknown":
                    settled += 1
                    house.http.post(
                        f"/plans/{shown}/actions/{action['index']}", json={"outcome": "succeeded"}
                    )
        time.sleep(0.02)
    return settled
