"""The subject of an approval of a tool call, as bytes. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from app.base.json import strict_json
from app.base.json.offload import loads

_HEAD: Final = b'{"args":'
_TAIL: Final = b',"definitionDigest":'


def tool_subject(tool: str, definition_digest: str, args: Mapping[str, Any], runtime_digest: str) -> bytes:
    """Return the subject of a call: its tool and definition, its arguments, and the runtime version. Call it through
    `offload` if the arguments may be large."""
    return strict_json.canonical(
        {
            "kind": "tool",
            "tool": tool,
            "definitionDigest": definition_digest,
            "args": dict(args),
            "runtimeVersion": runtime_digest,
        }
    )


def with_args(subject: bytes, args: Mapping[str, Any]) -> bytes:
    """Return the subject of the same call with other arguments."""
    if _TAIL not in subject:  # it went with its thread
        return strict_json.canonical({"args": dict(args)})
    return _HEAD + strict_json.canonical(dict(args)) + subject[_end_of_args(subject) :]


def args_text(subject: bytes) -> bytes:
    """Return the arguments of a call as JSON, with the keys of every object sorted."""
    return subject[len(_HEAD) : _end_of_args(subject)]


def parse_args(subject: bytes) -> dict[str, Any]:
    """Return the arguments of a call. Call it through `offload` if they may be large."""
    args: dict[str, Any] = loads(args_text(subject))
    return args


def parse_definition(subject: bytes) -> str:
    tail: dict[str, Any] = orjson.loads(b"{" + subject[_end_of_args(subject) + 1 :])
    return str(tail["definitionDigest"])


def bound_args(subject: bytes, free: Sequence[str]) -> bytes:
    """Return the arguments except those that may differ, in the form that is compared. Call it through `offload` if they
    may be large."""
    if not free:
        return args_text(subject)
    bound = {k: v for k, v in parse_args(subject).items() if k not in free}
    return orjson.dumps(bound, option=orjson.OPT_SORT_KEYS)


def _end_of_args(subject: bytes) -> int:
    """Return the offset at which the arguments end. They come first, and only digests, the kind and the name of a tool follow,
    which cannot contain the next key. So the last occurrence of that key ends the arguments."""
    return subject.rindex(_TAIL)


def approved_args(
    call: bytes, subject: bytes, original: bytes | None, digest: bytes
) -> dict[str, Any] | None:
    """Return the arguments that may be sent for the call with the subject `call`, or None if it is not what
    was approved.

    `subject` and its `digest` are the approval's. It must be the call itself, or the call with the
    arguments that an approver put in place of the `original` ones: the same tool, definition and runtime
    version as now.
    """
    if hashlib.sha256(subject).digest() != digest:
        return None
    args = parse_args(subject)
    if subject != call and (original != call or with_args(call, args) != subject):
        return None
    return args
