"""Processors that keep log lines free of payloads: ids of the work, kinds of errors, places in the code.

Error messages quote values, so they are omitted. A field that is not on the lists below is dropped.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import re
import sys
import time
from collections.abc import Callable, Iterator, MutableMapping
from types import FrameType, TracebackType
from typing import Any, Final

from app.base.blobs.store import BlobStoreError
from app.base.embedded_postgres import EmbeddedPostgresError
from app.base.ids import is_id
from app.base.logs.structured import structlog
from app.base.postgres.database import TENANT_ID

LogFields = MutableMapping[str, Any]

ID_PREFIXES: Final = {
    "query_id": "qry_",
    "work_id": "wrk_",
    "thread_id": "thr_",
    "plan_id": "pln_",
    "approval_id": "apr_",
    "runtime_id": "rt_",
    "process_id": "prc_",
}
TEXT_FIELDS: Final = frozenset({"event", "level", "timestamp", "logger", "at", "route", "method", "error"})
INTEGER_FIELDS: Final = frozenset({"entries", "status", "count", "lag_ms", "cpu_ms"})
HTTP_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
MAX_FIELD_CHARS: Final = 300
MAX_FRAMES: Final = 30
MAX_CHAINED_ERRORS: Final = 8  # of a chain
# Errors whose messages are logged: they are for the operator and contain nothing from a request, only text of this
# service or of the bucket client.
OPERATOR_ERRORS: Final = (EmbeddedPostgresError, BlobStoreError)
# Libraries whose messages without arguments begin with constant words.
LITERAL_MESSAGE_LOGGERS: Final = ("asyncio", "uvicorn")
_FIRST_WORDS: Final = re.compile(r"[A-Za-z ]*")


@contextlib.contextmanager
def bind_work_id(work_id: str) -> Iterator[None]:
    """Add `work_id` to each line that is logged in the block, and to an exception that leaves it."""
    before = structlog.contextvars.bind_contextvars(work_id=work_id)
    try:
        yield
    except Exception as error:
        if _work_id_in(error) is None:
            error.add_note(work_id)
        raise
    finally:
        structlog.contextvars.reset_contextvars(**before)


class Throttle:
    """Limit a repeated log line to one per interval."""

    def __init__(self, interval_s: float = 30.0) -> None:
        self._every_s = interval_s
        self._next: float | None = None

    def allow(self) -> bool:
        """Return whether a line is due: the first one is, then one per interval."""
        now = time.monotonic()
        if self._next is not None and now < self._next:
            return False
        self._next = now + self._every_s
        return True

    def reset(self) -> bool:
        """Return whether `allow` was called since the last reset. The next line counts as the first again."""
        was, self._next = self._next is not None, None
        return was


def log_ids(*values: object) -> dict[str, str]:
    """Return the values that are ids of this service, keyed by their log fields."""
    return {
        name: value
        for value in values
        if isinstance(value, str)
        for name, prefix in ID_PREFIXES.items()
        if is_id(prefix, value)
    }


def describe_errors(_logger: object, _method: str, fields: LogFields) -> LogFields:
    """Replace exceptions by their kinds and their places in the code. A structlog processor."""
    exc_info = fields.pop("exc_info", None)
    error = (
        exc_info if isinstance(exc_info, BaseException) else sys.exc_info()[1] if exc_info is True else None
    )
    if isinstance(exc_info, tuple):
        error = exc_info[1]
    if error is not None:
        fields["error"] = error
        fields["trace"] = error_trace(error)
    if isinstance(fields.get("error"), BaseException):
        logged = fields["error"]
        fields["error"] = error_names(logged)
        if fields.get("work_id") is None and (work_id := _work_id_in(logged)) is not None:
            fields["work_id"] = work_id
    return fields


def drop_unknown_fields(_logger: object, _method: str, fields: LogFields) -> LogFields:
    """Drop fields that are not allowed or have the wrong form. A structlog processor, the last before the
    writer."""
    allowed: dict[str, Any] = {}
    left_out: list[str] = []
    for name, value in fields.items():
        if value is None:
            continue
        if _is_allowed(name, value):
            allowed[name] = value[:MAX_FIELD_CHARS] if isinstance(value, str) else value
        else:
            left_out.append(name[:40])
    if left_out:
        allowed["left_out"] = left_out
    return allowed


def _is_allowed(name: str, value: object) -> bool:
    if name in INTEGER_FIELDS:
        return isinstance(value, int)
    if name == "trace":
        return isinstance(value, list)
    if not isinstance(value, str):
        return False
    if name in ID_PREFIXES:
        return is_id(ID_PREFIXES[name], value)
    if name == "tenant":
        return TENANT_ID.fullmatch(value) is not None
    if name == "method":
        return value in HTTP_METHODS
    if name == "address":
        return _is_address(value)
    return name in TEXT_FIELDS


def _is_address(text: str) -> bool:
    try:
        return "%" not in text and ipaddress.ip_address(text) is not None
    except ValueError:
        return False


def error_names(error: BaseException) -> str:
    """Return the kinds of an error and its causes, with the codes of Postgres and the operating system."""
    return " <- ".join(_error_name(e) for e in _chain(error))


def _error_name(error: BaseException) -> str:
    if isinstance(error, OPERATOR_ERRORS):
        return f"{type(error).__name__}: {error}"
    code = getattr(error, "sqlstate", None) or (error.errno if isinstance(error, OSError) else None)
    name = type(error).__name__
    return f"{name}({code})" if isinstance(code, str | int) else name


def error_trace(error: BaseException) -> list[str]:
    """Return where an error was raised, innermost frame last, followed by its causes."""
    lines: list[str] = []
    for one in _chain(error):
        lines.append(_error_name(one))
        lines += _frames(one.__traceback__)[-MAX_FRAMES:]
    return lines


def _frames(at: TracebackType | None) -> list[str]:
    frames = []
    while at is not None:
        frames.append(_place(at.tb_frame, at.tb_lineno))
        at = at.tb_next
    return frames


def thread_stack(frame: FrameType) -> list[str]:
    """Return the stack of a thread, with the innermost frame last."""
    places: list[str] = []
    at: FrameType | None = frame
    while at is not None and len(places) < MAX_FRAMES:
        places.append(_place(at, at.f_lineno))
        at = at.f_back
    return places[::-1]


def _place(frame: FrameType, line: int | None) -> str:
    return f"{frame.f_globals.get('__name__', '?')}:{line} {frame.f_code.co_name}"


def _chain(error: BaseException) -> list[BaseException]:
    chain: list[BaseException] = []
    left: list[BaseException | None] = [error]
    while left and len(chain) < MAX_CHAINED_ERRORS:
        one = left.pop(0)
        if one is None or one in chain:
            continue
        chain.append(one)
        left += one.exceptions if isinstance(one, BaseExceptionGroup) else ()
        left.append(one.__cause__ or (None if one.__suppress_context__ else one.__context__))
    return chain


def _work_id_in(error: BaseException) -> str | None:
    for one in _chain(error):
        for note in getattr(one, "__notes__", ()):
            if is_id("wrk_", note):
                return str(note)
    return None


class LibraryLogHandler(logging.Handler):
    """Log the records of libraries as lines like our own.

    Library messages may contain anything, so only the constant part is logged: the format without its
    arguments.
    """

    def __init__(self, write: Callable[[str], None]) -> None:
        super().__init__()
        self._write = write

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line: LogFields = {
                "event": f"library: {_message_template(record)}".rstrip(": "),
                "logger": record.name,
                "at": f"{record.module}:{record.lineno}",
                "level": record.levelname.lower(),
                "exc_info": record.exc_info,
            }
            for step in PROCESSORS:
                line = step(None, record.levelname.lower(), line)
            self._write(str(structlog.processors.JSONRenderer()(None, "", line)))
        except Exception:  # noqa: BLE001 - a failure to log must not stop anything
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Ignore errors while logging: the default of `logging` would print the arguments."""


def _message_template(record: logging.LogRecord) -> str:
    if not isinstance(record.msg, str):
        return ""
    if record.args:
        return record.msg
    if record.name.split(".")[0] in LITERAL_MESSAGE_LOGGERS:
        words = _FIRST_WORDS.match(record.msg)
        return words[0].strip() if words else ""
    return ""


PROCESSORS: Final[tuple[Callable[[Any, str, Any], Any], ...]] = (
    structlog.contextvars.merge_contextvars,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    describe_errors,
    drop_unknown_fields,
)
