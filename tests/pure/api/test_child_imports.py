"""A child process serves nobody: it loads neither the web framework nor the client of the service."""

from __future__ import annotations

import subprocess
import sys

NOT_FOR_CHILDREN = ("fastapi", "starlette", "uvicorn", "httpx", "plangate.client", "plangate.api.calls", "sqlalchemy",
                    "alembic", "mcp", "typer", "anthropic", "openai", "rich", "pygments", "greenlet",
                    "cel_expr_python.cel")  # fmt: skip


def loaded(modules: str, *names: str) -> list[str]:
    """Return which of these modules a new process has loaded after it imported the modules."""
    code = f"import sys\nimport {modules}\nprint(*[name for name in {names!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_a_child_process_loads_only_what_it_needs_to_work_on_queries() -> None:
    assert loaded("app.api.child_process", *NOT_FOR_CHILDREN) == []


def test_a_serving_process_does_not_load_unused_libraries() -> None:
    # The command line knows rich and loads it on first use.
    names = ("sqlalchemy", "greenlet", "alembic", "rich.segment", "pygments", "cel_expr_python.cel")
    assert loaded("app.commands.main, app.api.process, app.api.serving", *names) == []
