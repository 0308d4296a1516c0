"""Configure structured logs: one JSON object per line on standard error, without secrets and payloads."""

from __future__ import annotations

import logging
import sys

from app.base.logs.processors import PROCESSORS, LibraryLogHandler
from app.base.logs.structured import structlog


def configure(level: str) -> None:
    """Configure logging of this process. Call it once, in processes that serve or work."""
    number = logging.getLevelNamesMapping().get(level.upper(), logging.INFO)
    structlog.configure(
        processors=[structlog.processors.add_log_level, *PROCESSORS, structlog.processors.JSONRenderer()],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    logging.captureWarnings(True)
    logging.basicConfig(level=logging.WARNING, handlers=[LibraryLogHandler(_write)], force=True)
    for name in ("client", "mcp"):  # the MCP SDK logs what servers send, and sessions by their ids
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _write(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201
