"""An OTLP receiver over HTTP on loopback, and spans as tests read them, parsed by OpenTelemetry's own code."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class Got:
    """A span that came."""

    trace: str
    span: str
    parent: str
    name: str
    kind: int
    start_ns: int
    end_ns: int
    status: int
    message: str
    attributes: dict[str, Any]
    resource: dict[str, Any]
    links: list[tuple[str, str]]


@dataclass
class OtlpReceiver:
    """`status` is what it answers; `hold` makes it answer nobody until `let_go`."""

    status: int = 200
    spans: list[Got] = field(default_factory=list)
    metrics: dict[str, Any] = field(default_factory=dict)
    headers: list[dict[str, str]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        outer = self
        self._open = threading.Event()
        self._open.set()
        self.came = threading.Event()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                outer.came.set()
                outer._open.wait(30)
                outer._take(self.path, dict(self.headers), body)
                self.send_response(outer.status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Nobody reads it."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def hold(self) -> None:
        self._open.clear()

    def let_go(self) -> None:
        self._open.set()

    def close(self) -> None:
        self.let_go()
        self._server.shutdown()
        self._server.server_close()

    def of(self, query_id: str) -> list[Got]:
        """The spans of a query, in the order in which they came."""
        return [s for s in self.spans if s.attributes["plangate.query.id"] == query_id]

    def wait(self, query_id: str, count: int, patience_s: float = 30.0) -> list[Got]:
        """The spans of a query once there are so many different ones."""
        deadline = time.monotonic() + patience_s
        while len({s.span for s in self.of(query_id)}) < count:
            assert time.monotonic() < deadline, [s.name for s in self.of(query_id)]
            time.sleep(0.02)
        return self.of(query_id)

    def _take(self, path: str, headers: dict[str, str], body: bytes) -> None:
        self.headers.append(headers)
        self.bodies.append(body)
        if self.status != 200:
            return
        if path == "/v1/traces":
            request = ExportTraceServiceRequest.FromString(body)
            for resource in request.resource_spans:
                about = values(resource.resource.attributes)
                for scope in resource.scope_spans:
                    self.spans += [_got(span, about) for span in scope.spans]
        else:
            assert path == "/v1/metrics", path
            for part in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for measured in part.scope_metrics:
                    self.metrics |= {metric.name: metric for metric in measured.metrics}


def _got(span: Any, resource: dict[str, Any]) -> Got:
    return Got(
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.name,
        span.kind,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        span.status.code,
        span.status.message,
        values(span.attributes),
        resource,
        [(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
    )


def values(pairs: Any) -> dict[str, Any]:
    """Attributes as plain values."""
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(v) for v in value.array_value.values]
    return getattr(value, kind)
