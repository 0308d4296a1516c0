"""Log lines: they name the work and contain no text from outside."""

from __future__ import annotations

import ast
import asyncio
import json
import logging
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import structlog

from app.base.embedded_postgres import EmbeddedPostgresError
from app.base.errors import Unavailable
from app.base.ids import new_id
from app.base.logs import processors
from app.base.logs.processors import INTEGER_FIELDS, TEXT_FIELDS, LibraryLogHandler, bind_work_id

APP = Path(__file__).parents[3] / "app"
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
SECRET = 'sk-hostile-4711 plg_0123456789 {"prompt": "do evil"}'
PARTS = ("hostile", "4711", "evil", "plg_")


@pytest.fixture
def lines() -> Iterator[list[dict[str, Any]]]:
    """What a process that is configured as ours writes."""
    out: list[dict[str, Any]] = []

    def keep(_logger: Any, _method: str, line: Any) -> Any:
        out.append(json.loads(structlog.processors.JSONRenderer()(None, "", line)))
        raise structlog.DropEvent

    structlog.configure(processors=[structlog.processors.add_log_level, *processors.PROCESSORS, keep])
    yield out
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


@pytest.fixture
def library(request: pytest.FixtureRequest) -> Iterator[list[dict[str, Any]]]:
    """What the handler makes of lines of libraries."""
    out: list[dict[str, Any]] = []
    handler = LibraryLogHandler(lambda line: out.append(json.loads(line)))
    root = logging.getLogger()
    root.addHandler(handler)
    yield out
    root.removeHandler(handler)


def clean(found: Any) -> None:
    text = json.dumps(found)
    assert not [part for part in PARTS if part in text], text


# -- every line of ours


@cache
def calls() -> list[Any]:
    """Every call of a logger in the service."""
    found = []
    for file in sorted(APP.rglob("*.py")):
        text = file.read_text("utf-8")
        if "log." not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            of = node.func.value
            if isinstance(of, ast.Name) and of.id == "log" and node.func.attr in LEVELS:
                found.append(pytest.param(node, id=f"{file.relative_to(APP)}:{node.lineno}"))
    return found


def test_there_are_lines() -> None:
    assert len(calls()) > 15


@pytest.mark.parametrize("call", calls())
def test_log_events_are_constants_with_allowed_fields(call: ast.Call) -> None:
    (event,) = call.args
    assert isinstance(event, ast.Constant)
    known = (
        TEXT_FIELDS
        | INTEGER_FIELDS
        | processors.ID_PREFIXES.keys()
        | {"tenant", "exc_info", "trace", "address"}
    )
    for given in call.keywords:
        if given.arg is None:  # **: the functions that give ids, and the place of a request
            assert isinstance(given.value, ast.Call)
            assert isinstance(given.value.func, ast.Name)
            assert given.value.func.id in ("log_ids", "request_log_fields")
            continue
        assert given.arg in known, f"{given.arg} would be left out"
        if given.arg in ("error", "exc_info", "trace"):
            assert isinstance(given.value, ast.Name), (
                "an error is given as it is: its text may quote anything"
            )


@pytest.mark.parametrize("call", calls())
def test_a_log_line_about_a_query_has_its_id(call: ast.Call) -> None:
    (event,) = call.args
    assert isinstance(event, ast.Constant)
    if str(event.value).startswith("query.") or event.value == "journal.entry_rejected":
        assert "query_id" in {k.arg for k in call.keywords}


# -- what may stand in one


def test_an_error_is_logged_by_kind_code_and_place(lines: list[dict[str, Any]]) -> None:
    def inner() -> None:
        raise asyncpg.UniqueViolationError(f"Key (secret)=({SECRET}) already exists")

    try:
        try:
            inner()
        except asyncpg.UniqueViolationError as cause:
            raise ValueError(SECRET) from cause
    except ValueError:
        structlog.get_logger().exception("test.failed")
    (line,) = lines
    assert line["error"] == "ValueError <- UniqueViolationError(23505)"
    assert line["level"] == "error"
    assert line["trace"][0] == "ValueError"
    assert line["trace"][-1].endswith(" inner")
    assert line["trace"][-1].startswith(f"{__name__}:")
    clean(line)


def test_only_operator_messages_of_errors_are_logged(
    lines: list[dict[str, Any]],
) -> None:
    log = structlog.get_logger()
    log.warning("a", error=Unavailable(SECRET))
    log.warning("b", error=ConnectionRefusedError(111, SECRET))
    log.error("c", error=EmbeddedPostgresError("The disk is full."))
    assert [x["error"] for x in lines] == [
        "Unavailable",
        "ConnectionRefusedError(111)",
        "EmbeddedPostgresError: The disk is full.",
    ]
    clean(lines)


def test_exception_groups_and_chains_reveal_no_messages(lines: list[dict[str, Any]]) -> None:
    error: BaseException = ValueError(SECRET)
    for _ in range(50):
        wrapped = RuntimeError(SECRET)
        wrapped.__cause__, error = error, wrapped
    error.add_note(SECRET)
    try:
        raise ExceptionGroup(SECRET, [KeyError(SECRET), error])  # type: ignore[list-item]
    except ExceptionGroup:
        structlog.get_logger().exception("test.failed")
    (line,) = lines
    assert line["error"].startswith("ExceptionGroup <- KeyError <- RuntimeError")
    assert len(line["trace"]) < 40
    clean(line)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("query_id", SECRET),
        ("query_id", "wrk_" + "0" * 26),
        ("work_id", f"wrk_01m84ksn00ft7yjemqvnm5bx6w{SECRET}"),
        ("tenant", SECRET),
        ("tenant", "acme\n" + SECRET),
        ("method", SECRET),
        ("entries", SECRET),
        ("trace", SECRET),
        ("error", {"a": SECRET}),
        ("prompt", SECRET),
        ("headers", {"authorization": SECRET}),
    ],
)
def test_fields_with_an_unexpected_form_are_omitted(
    lines: list[dict[str, Any]], name: str, value: Any
) -> None:
    structlog.get_logger().warning("test.event", **{name: value})
    (line,) = lines
    assert line["left_out"] == [name]
    assert name not in line
    clean(line)


def test_fields_with_the_expected_form_are_logged(lines: list[dict[str, Any]]) -> None:
    said = {
        "query_id": new_id("qry_"),
        "work_id": new_id("wrk_"),
        "tenant": "acme",
        "entries": 3,
        "method": "GET",
    }
    structlog.get_logger().warning("test.event", **said, thread_id=None)
    (line,) = lines
    assert {k: line[k] for k in said} == said
    assert set(line) == {*said, "event", "level", "timestamp"}


# -- which work


def test_lines_inside_work_have_its_id(lines: list[dict[str, Any]]) -> None:
    outer, inner = new_id("wrk_"), new_id("wrk_")
    log = structlog.get_logger()
    with bind_work_id(outer):
        with bind_work_id(inner):
            log.warning("a")
        log.warning("b")
    log.warning("c")
    assert [x.get("work_id") for x in lines] == [inner, outer, None]


def test_an_error_leaving_work_has_its_id(lines: list[dict[str, Any]]) -> None:
    outer, inner = new_id("wrk_"), new_id("wrk_")
    try:
        with bind_work_id(outer), bind_work_id(inner):
            raise ValueError(SECRET)
    except ValueError:
        structlog.get_logger().exception("test.failed")
    assert lines[0]["work_id"] == inner
    clean(lines)


# -- lines of libraries


def test_library_lines_are_logged_without_arguments(library: list[dict[str, Any]]) -> None:
    log = logging.getLogger("some.library")
    log.warning("could not reach %s with %s", SECRET, SECRET)
    log.error(f"could not reach {SECRET}")
    log.error({"body": SECRET})
    assert [(x["event"], x["logger"], x["level"]) for x in library] == [
        ("library: could not reach %s with %s", "some.library", "warning"),
        ("library", "some.library", "error"),
        ("library", "some.library", "error"),
    ]
    assert all(x["at"].startswith("test_logs:") for x in library)
    clean(library)


def test_library_errors_are_logged_without_text(library: list[dict[str, Any]]) -> None:
    try:
        raise ValueError(SECRET)
    except ValueError:
        logging.getLogger("uvicorn.error").exception("Exception in ASGI application\n")
    (line,) = library
    assert line["event"] == "library: Exception in ASGI application"
    assert line["error"] == "ValueError"
    clean(line)


async def test_event_loop_messages_are_logged_without_the_task(
    library: list[dict[str, Any]],
) -> None:
    loop = asyncio.get_running_loop()

    async def fails() -> None:
        raise ValueError(SECRET)

    task = asyncio.create_task(fails(), name=SECRET)
    await asyncio.wait([task])
    error = task.exception()
    loop.default_exception_handler(
        {"message": "Task exception was never retrieved", "exception": error, "future": task}
    )
    loop.default_exception_handler(
        {"message": f"Exception in callback print({SECRET!r})", "exception": error}
    )
    assert [x["event"] for x in library] == [
        "library: Task exception was never retrieved",
        "library: Exception in callback print",
    ]
    clean(library)


def test_warnings_are_logged_without_text(library: list[dict[str, Any]]) -> None:
    logging.captureWarnings(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn(f"unexpected value {SECRET}", UserWarning, stacklevel=1)
    finally:
        logging.captureWarnings(False)
    assert [x["logger"] for x in library] == ["py.warnings"]
    clean(library)


def test_an_unwritable_log_line_is_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    def broken(_line: str) -> None:
        raise OSError("no space left")

    LibraryLogHandler(broken).handle(logging.LogRecord("x", logging.ERROR, "f", 1, "%s", (SECRET,), None))
    said = capsys.readouterr()
    clean(said.out + said.err)
