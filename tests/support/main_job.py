"""What the main job must have done, whichever client did it."""

from __future__ import annotations

import hashlib
from typing import Any

import httpx

from tests.support.service import Service


def check_report(report: dict[str, Any], service: Service) -> None:
    """Check what a program of the main job printed: register, start, follow over two connections, approve by digest, serve
    a tool and the actions, read the plan and the work records."""
    assert report["seqs"] == list(range(1, len(report["seqs"]) + 1))
    assert report["types"][-1] == "finish" and "tool-progress" in report["types"]
    assert report["calls"] == [{"args": {"name": "ann"}, "toolUseId": "scripted-tool-1", "agent": "planner"}]
    assert report["sent"] == [{"to": "ann", "cents": 9007199254740991}]
    assert report["plan"] == "executed" and report["work"] > 5
    headers = {"Authorization": f"Bearer {service.key}"}
    with httpx.Client(base_url=service.url, headers=headers) as api:
        approval = api.get("/approvals", params={"status": "approved", "limit": 1}).json()["items"][0]
        subject = api.get(f"/approvals/{approval['id']}/subject").content
    assert report["digest"] == approval["digest"] == hashlib.sha256(subject).hexdigest()
