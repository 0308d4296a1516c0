"""Structured logs: one JSON object a line on standard error. No secrets, no payloads."""

from __future__ import annotations

import logging
import sys

import structlog


def configure(level: str) -> None:
    """Called once, by the process that serves or works."""
    number = logging.getLevelNamesMapping().get(level.upper(), logging.INFO)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    for name in ("client", "mcp"):  # the MCP SDK logs what servers send, and sessions by their ids
        logging.getLogger(name).setLevel(logging.CRITICAL)
