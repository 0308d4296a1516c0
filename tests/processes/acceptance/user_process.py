"""A client process: it claims calls, acts on them, and posts results.

It stands for code next to the user's own data, so it runs alone and knows nothing of the service but HTTP. What it
does is on record in a folder that outlives it: `arrivals` has a line for each piece of work that reached it,
`ledger` one for each that took effect (a key that is in it already has no second effect), `answers` what the
service said to its results. While the file `hold` exists it has acted and does not answer; `hold-<index>` is for one
action of a plan.

    user_process.py URL KEY_FILE FOLDER NAMES LEASE_MS
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx

WAIT_S = 0.05


def carried_out(actions: list[dict[str, Any]]) -> dict[str, Any]:
    """What a dispatcher says of actions: one with numbers gives their sum, under its name where it has one."""
    payload = actions[0].get("payload", {})
    if "fails" in payload:
        return {"error": payload["fails"]}
    output: dict[str, Any] = {"entitiesAffected": len(actions), "summary": "done"}
    if "numbers" in payload:
        total = sum(payload["numbers"])
        output["details"] = {payload["name"]: total} if "name" in payload else total
    return {"output": output}


class User:
    def __init__(self, url: str, key_file: str, folder: str, names: str, lease_ms: str) -> None:
        key = Path(key_file).read_text("utf-8").strip()
        self.http = httpx.Client(
            base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=10, verify=False
        )
        self.folder = Path(folder)
        self.tools = [{"name": name} for name in names.split(",")]
        self.lease_ms = int(lease_ms)

    def post(self, path: str, body: dict[str, Any]) -> httpx.Response | None:
        """None while the service is not there or cannot work."""
        try:
            answer = self.http.post(path, json=body)
        except httpx.HTTPError:
            return None
        return None if answer.status_code >= 500 else answer

    def serve(self) -> None:
        """Claims again with the same token until there is an answer: what a lost one gave would be held for its lease."""
        while True:
            claim = {
                "tools": self.tools,
                "max": 20,
                "leaseMs": self.lease_ms,
                "claimToken": secrets.token_hex(16),
            }
            while (answer := self.post("/tool-calls/claim", claim)) is None:
                time.sleep(WAIT_S)
            for call in answer.json()["calls"] if answer.is_success else ():
                threading.Thread(target=self.handle, args=(call,), daemon=True).start()
            time.sleep(WAIT_S)

    def handle(self, call: dict[str, Any]) -> None:
        actions = {action["idempotencyKey"]: action for action in call.get("actions", ())}
        keys = list(actions) or [call["workId"]]
        note = {"name": call["name"], "workId": call["workId"], "queryId": call["queryId"]}
        for key in keys:
            came = {"key": key, "dispatch": call.get("idempotencyKey"), "action": actions.get(key)}
            self.write("arrivals", {**came, **note})
            self.take_effect(key, note)
        held = {"claimToken": call["claimToken"], "leaseMs": self.lease_ms}
        beat = time.monotonic()
        while self.holds(call):
            if time.monotonic() - beat > self.lease_ms / 3000:
                beat = time.monotonic()
                answer = self.post(f"/tool-calls/{call['workId']}/heartbeat", held)
                if answer is not None and answer.status_code == 409:
                    self.write("answers", {"lapsed": True, **note})
                    return
            time.sleep(0.02)
        done = (
            carried_out(call["actions"])
            if call["purpose"] == "action"
            else {"output": {"served": call["args"]}}
        )
        result = {"claimToken": call["claimToken"], **done}
        while (answer := self.post(f"/tool-calls/{call['workId']}/result", result)) is None:
            time.sleep(WAIT_S)
        self.write("answers", {"status": answer.status_code, "body": answer.json(), **note})

    def holds(self, call: dict[str, Any]) -> bool:
        """Whether everything is held, or one of these actions is."""
        names = ["hold", *(f"hold-{action['index']}" for action in call.get("actions", ()))]
        return any((self.folder / name).exists() for name in names)

    def take_effect(self, key: str, note: dict[str, Any]) -> None:
        """Once a key: who comes again finds its own line."""
        with (self.folder / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            ledger = self.folder / "ledger"
            known = ledger.read_text("utf-8").splitlines() if ledger.exists() else []
            if not any(json.loads(line)["key"] == key for line in known):
                self.write("ledger", {"key": key, **note})

    def write(self, name: str, line: dict[str, Any]) -> None:
        handle = os.open(self.folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.write(handle, json.dumps({**line, "pid": os.getpid(), "at": time.time()}).encode() + b"\n")
        os.close(handle)


if __name__ == "__main__":
    User(*sys.argv[1:]).serve()
