"""A client that follows a query, logs every event, and resumes with Last-Event-ID after each disconnect."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx

TERMINAL = ("finish", "error")
# After a kill, eight child processes start at once, which takes two busy processors over ten seconds; a storm kills
# the service more than once while a client waits.
PATIENCE_S = 100.0
Event = dict[str, Any]


@dataclass(frozen=True)
class Frame:
    """An event as it came over the wire, and when."""

    id: str
    type: str
    data: bytes
    at: float

    @property
    def event(self) -> Event:
        found: Event = json.loads(self.data)
        return found


class Reader:
    """Follows `query_id` from its first event in a thread; ends with the terminal event, or with `close`.

    `ends` says how each connection ended: "clean" between two events, "cut", or "refused"."""

    def __init__(self, url: str, key: str, query_id: str, after: str | None = None) -> None:
        self.query_id = query_id
        self.frames: list[Frame] = []
        self.ends: list[str] = []
        self.fault: str | None = None
        self._last = after
        self._closed = False
        self._news = threading.Condition()
        self._http = httpx.Client(
            base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=60, verify=False
        )
        self._thread = threading.Thread(target=self._run, name=f"reader-{query_id}", daemon=True)
        self._thread.start()

    @property
    def events(self) -> list[Event]:
        return [f.event for f in self.frames]

    @property
    def newest(self) -> Event:
        return self.frames[-1].event if self.frames else {}

    @property
    def over(self) -> bool:
        return bool(self.frames) and self.frames[-1].type in TERMINAL

    def wait(self, wanted: Callable[[Event], bool], what: str, patience_s: float = PATIENCE_S) -> Frame:
        """The first event that is `wanted`, as soon as it is here."""
        deadline, seen = time.monotonic() + patience_s, 0
        with self._news:
            while True:
                while seen < len(self.frames):
                    frame, seen = self.frames[seen], seen + 1
                    if wanted(frame.event):
                        return frame
                assert self.fault is None, self.fault
                assert not self.over, f"{self.query_id} ended without {what}: {self.frames[-1].data!r}"
                left = deadline - time.monotonic()
                assert left > 0, f"not within {patience_s} s: {what}; {self.tail()}"
                self._news.wait(left)

    def wait_type(self, type_: str, **data: Any) -> Frame:
        """The first event of a type whose `data` (or envelope) has these values."""

        def wanted(event: Event) -> bool:
            inner = {**event, **(event.get("data") or {})}
            return event["type"] == type_ and all(inner.get(k) == v for k, v in data.items())

        return self.wait(wanted, f"{type_} {data or ''}")

    def wait_end(self, patience_s: float = PATIENCE_S) -> Event:
        return self.wait(lambda e: e["type"] in TERMINAL, "its end", patience_s).event

    def tail(self) -> str:
        told = [f"{f.event['seq']} {f.type} {f.data[-160:]!r}" for f in self.frames[-5:]]
        return f"{self.query_id} {self.ends}\n" + "\n".join(told)

    def close(self) -> None:
        self._closed = True
        self._http.close()
        self._thread.join(5)

    def _run(self) -> None:
        while not (self._closed or self.over or self.fault):
            try:
                how = self._follow()
            except (httpx.ConnectError, httpx.ConnectTimeout):
                how = "refused"
            except httpx.HTTPError:
                how = "cut"
            except RuntimeError:  # the client was closed under the request
                return
            with self._news:
                if not (how == "refused" and self.ends[-1:] == ["refused"]):
                    self.ends.append(how)
                self._news.notify_all()
            if how == "refused":
                time.sleep(0.05)

    def _follow(self) -> str:
        headers = {}
        if self._last is not None:
            headers["last-event-id"] = self._last
        with self._http.stream("GET", f"/queries/{self.query_id}/stream", headers=headers) as answer:
            if answer.status_code == 503:
                return "refused"
            if answer.status_code != 200:
                self.fault = f"{answer.status_code} {answer.read().decode()}"
                return "refused"
            for frame in frames_of(answer.iter_raw()):
                with self._news:
                    self.frames.append(frame)
                    self._last = frame.id
                    self._news.notify_all()
        return "clean"


def frames_of(chunks: Iterator[bytes]) -> Iterator[Frame]:
    """The events of a stream. Only LF and CR LF end a line; a frame that was cut off is none."""
    rest = b""
    fields: dict[bytes, bytes] = {}
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for raw in lines:
            line = raw.removesuffix(b"\r")
            if line:
                name, _, value = line.partition(b":")
                fields[name] = value.removeprefix(b" ")
                continue
            if b"data" in fields:
                yield Frame(
                    fields[b"id"].decode(), fields[b"event"].decode(), fields[b"data"], time.monotonic()
                )
            fields = {}
