"""A user's HTTP endpoint, in a process that no test kills: it records requests and answers when allowed."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Does = Callable[[dict[str, Any]], dict[str, Any]]


def counted(body: dict[str, Any]) -> dict[str, Any]:
    return {"output": {"entitiesAffected": len(body.get("actions", [1]))}}


class Receiver:
    """`does` gives the answer to a body."""

    def __init__(self, does: Does = counted) -> None:
        self.received: list[tuple[dict[str, str], dict[str, Any]]] = []
        self._may_answer = threading.Event()
        self._may_answer.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["content-length"])
                data = self.rfile.read(length)
                if len(data) < length:
                    return  # who asked was killed
                body = json.loads(data)
                receiver.received.append(({k.lower(): v for k, v in self.headers.items()}, body))
                receiver._may_answer.wait(60)
                answer = json.dumps(does(body)).encode()
                try:
                    self.send_response(200)
                    self.send_header("content-length", str(len(answer)))
                    self.end_headers()
                    self.wfile.write(answer)
                except ConnectionError:
                    self.close_connection = True  # who asked was killed

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def hold(self) -> None:
        self._may_answer.clear()

    def let_go(self) -> None:
        self._may_answer.set()

    def of(self, query_id: str) -> list[tuple[dict[str, str], dict[str, Any]]]:
        """What came for one query, in order."""
        return [r for r in self.received if r[1]["context"]["queryId"] == query_id]

    def close(self) -> None:
        self.let_go()
        self._server.shutdown()
        self._server.server_close()
