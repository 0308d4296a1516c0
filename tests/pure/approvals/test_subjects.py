"""The subject of a tool call is assembled from parts, with the bytes of the whole."""

from __future__ import annotations

import hashlib
from typing import Any

import orjson
import pytest

from app.approvals.subject import (
    approved_args,
    args_text,
    bound_args,
    parse_args,
    parse_definition,
    tool_subject,
    with_args,
)
from app.base.json import strict_json

HOSTILE: dict[str, Any] = {
    "z": {"definitionDigest": "no", "tool": ',"definitionDigest":"x"'},
    "definitionDigest": ["}", '"', "\\"],
    "a": None,
}


@pytest.mark.parametrize("args", [{}, {"n": 7}, HOSTILE, {"args": HOSTILE, "runtimeVersion": 1.5}])
@pytest.mark.parametrize("others", [{}, {"m": [1, None]}, HOSTILE])
def test_parts_of_a_subject_match_its_json(args: dict[str, Any], others: dict[str, Any]) -> None:
    subject = tool_subject("pay", "d1", args, "r1")
    whole = orjson.loads(subject)
    assert parse_args(subject) == args
    assert args_text(subject) == strict_json.canonical(args)
    assert parse_definition(subject) == "d1"
    assert bound_args(subject, ["a", "n"]) == strict_json.canonical(
        {name: held for name, held in args.items() if name not in ("a", "n")}
    )
    edited = with_args(subject, others)
    assert edited == strict_json.canonical({**whole, "args": others})
    digest = hashlib.sha256(edited).digest()
    assert approved_args(subject, edited, subject, digest) == others


def test_a_deleted_subject_accepts_arguments() -> None:
    assert with_args(b"{}", {"n": 1}) == b'{"args":{"n":1}}'
