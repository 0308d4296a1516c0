"""A helper process as that of a source of files, for tests of what it cannot do."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from app.base.json.worker import Answer, Verb
from app.catalog.source_worker import write_no_files


def _write(head: Mapping[str, Any], _data: bytearray) -> Answer:
    write_no_files()
    try:
        with open(head["path"], "wb", buffering=0) as file:
            file.write(b"x")
    except OSError as error:
        return {"error_text": error.strerror}, b""
    return {"error_text": None}, b""


def _environment(_head: Mapping[str, Any], _data: bytearray) -> Answer:
    return {"names": sorted(os.environ)}, b""


def verbs() -> Mapping[str, Verb]:
    return {"write": _write, "environment": _environment}
