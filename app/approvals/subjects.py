"""What is approved of a tool call, as bytes. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from app.base import jsongate


def tool_subject(tool: str, definition_digest: str, args: Mapping[str, Any], runtime_digest: str) -> bytes:
    """The subject of a call: which tool in which definition, with which arguments, under which runtime version."""
    return jsongate.canonical(
        {
            "tool": tool,
            "definitionDigest": definition_digest,
            "args": dict(args),
            "runtimeVersion": runtime_digest,
        }
    )


def with_args(subject: bytes, args: Mapping[str, Any]) -> bytes:
    """The same call with other arguments."""
    return jsongate.canonical({**orjson.loads(subject), "args": dict(args)})


def args_of(subject: bytes) -> dict[str, Any]:
    args: dict[str, Any] = orjson.loads(subject)["args"]
    return args


def definition_of(subject: bytes) -> str:
    return str(orjson.loads(subject)["definitionDigest"])


def bound_args(subject: bytes, free: Sequence[str]) -> bytes:
    """The arguments but for those that may differ, in the form that is compared."""
    return jsongate.canonical({k: v for k, v in args_of(subject).items() if k not in free})


def approved_args(
    call: bytes, subject: bytes, original: bytes | None, digest: bytes
) -> dict[str, Any] | None:
    """The arguments that may be sent for the call with the subject `call`; None where it is not what was approved.

    `subject` and its `digest` are the approval's. It must be the call itself, or the call with the arguments that
    an approver put in the place of the `original` ones: the same tool, definition and runtime version as now.
    """
    if hashlib.sha256(subject).digest() != digest:
        return None
    args = args_of(subject)
    if subject != call and (original != call or with_args(call, args) != subject):
        return None
    return args
