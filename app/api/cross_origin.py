"""Access for pages of other origins (CORS): with API keys, never with the cookie of a session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "DELETE")
REQUEST_HEADERS: Final = (
    "Authorization",
    "Content-Type",
    "Idempotency-Key",
    "If-Match",
    "If-None-Match",
    "If-Range",
    "Last-Event-ID",
    "Plangate-Principal",
    "Plangate-Tenant",
    "Range",
    "Traceparent",
)
"""What pages may send. `Plangate-Request`, which writes with a session need, is not among them."""
RESPONSE_HEADERS: Final = (
    "Accept-Ranges",
    "Content-Range",
    "ETag",
    "Location",
    "Retry-After",
    "WWW-Authenticate",
)
MAX_AGE_S: Final = 600


def install(api: FastAPI, origins: Sequence[str]) -> None:
    """Let pages of these origins call the API with a key. Without origins, no other origin may."""
    if origins:
        api.add_middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=METHODS,
            allow_headers=REQUEST_HEADERS,
            expose_headers=RESPONSE_HEADERS,
            allow_credentials=False,
            max_age=MAX_AGE_S,
        )
