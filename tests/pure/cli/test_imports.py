"""Client commands do not import the service, which takes seconds."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.service import ROOT

SERVICE = ("sqlalchemy", "asyncpg", "fastapi", "starlette", "uvicorn", "structlog", "cryptography", "jsonschema_rs",
           "anthropic", "openai", "pydantic_settings")  # fmt: skip
# Modules that load with their package. A package that is loaded on first use is already in sys.modules before.
NOT_FOR_HELP = (*SERVICE, "httpx._client", "pydantic.main", "pydantic_core", "rich.segment", "typer.rich_utils", "pygments",
                "markdown_it")  # fmt: skip
RUN = """
import sys
from app.commands.main import main
try:
    main()
except SystemExit as end:
    code = end.code
print([name for name in {names!r} if name in sys.modules], code, file=sys.stderr)
"""


class Absent(BaseHTTPRequestHandler):
    """Knows nothing of what it is asked for."""

    def answer(self) -> None:
        body = json.dumps({"type": "not_found", "title": "No", "status": 404, "detail": "Nothing."}).encode()
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.send_response(404)
        self.send_header("content-type", "application/problem+json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = answer

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Absent)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def loaded(*arguments: str, names: tuple[str, ...] = SERVICE, **env: str) -> str:
    """Return which of these modules a command loaded, and its exit code."""
    code = RUN.format(names=names)
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False, env=env
    )
    return done.stderr.splitlines()[-1]


def test_help_imports_neither_the_service_nor_the_http_client() -> None:
    assert loaded("--help", names=NOT_FOR_HELP) == "[] 0"
    client = tuple(name for name in NOT_FOR_HELP if "pydantic" not in name)  # typer checks options with it
    assert loaded("work", "--help", names=client) == "[] 0"


@pytest.mark.parametrize(
    "command",
    [("query", "hi"), ("watch", "qry_1"), ("work", "qry_1"), ("artifacts",), ("approvals", "list"),
     ("approvals", "reject", "apr_1"), ("queries", "list"), ("queries", "cancel", "qry_1"), ("runtimes", "list")],
    ids=" ".join,
)  # fmt: skip
def test_client_commands_do_not_import_the_service(url: str, command: tuple[str, ...]) -> None:
    assert loaded(*command, PLANGATE_URL=url, PLANGATE_API_KEY="plg_key") == "[] 1"


def test_service_commands_import_the_service(url: str) -> None:
    assert loaded("openapi").startswith("['asyncpg', 'fastapi'")


def test_an_interrupt_while_the_service_is_loaded_ends_the_process(tmp_path: Path) -> None:
    """Python would clear it, and go on with half of a module."""
    (tmp_path / "half.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nwhole = True\n"
    )
    code = (  # a shell that runs the tests in its background has interrupts ignored
        "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from plangate.lazy_import import lazy_module\nlazy_module('half')\nfrom half import whole"
    )
    env = {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")
