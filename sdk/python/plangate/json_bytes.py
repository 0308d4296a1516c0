"""JSON as bytes for the service. Pure."""

from __future__ import annotations

import json
from typing import Any


def to_json(value: Any) -> bytes:
    """Return a value as UTF-8 JSON. Raise ValueError for a value that JSON cannot express."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"this cannot be sent as JSON: {error}") from error
