"""The sections about variables and memory in the prompt of an agent. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from plangate.printable import to_printable_json

from app.documents.bodies import load_value
from app.documents.glimpses import glimpse_value, truncate_text
from app.documents.writing import json_type

MAX_LINES: Final = 60
_GLIMPSE_CHARS: Final = 120
_KEY_CHARS: Final = 100
_BARE: Final = re.compile(r"(?!\d+\Z)[\w$-]+", re.ASCII)

_RULES: Final = """\
# Variables

A string that is exactly one of the paths below, as an argument of a tool or anywhere inside of one, stands for the \
value behind it. The value is put in before the call is made: pass the path, never copy the value. Paths go deeper \
with dots (†state.rows.0.name); a key that is no plain word is quoted (†state."net.eur"). "†a || †b" is the first that \
exists, "†a && †b" needs both and is the last. Inside of other text nothing is replaced. A text that begins with † \
itself is written with two.

With _outputPath (†state.<path>, †memory.<path>, or †<name>.<path> of a data object) the result of a call goes there \
instead of into this conversation, and you get a receipt. _outputMethod is set (default), merge, assign, push or concat. \
†memory lasts beyond this thread, †state as long as this thread, data objects as long as this query.

At the beginning of this task there are:
"""


def prompt_section(bodies: Mapping[str, bytes], references: Iterable[str]) -> str:
    """Return the rules, the paths of these documents by kind, each with its type and glimpse, and the kinds
    of references."""
    paths = (one for kind, body in bodies.items() for one in _paths(kind, load_value(body)))
    lines = _lines((f"†{kind}", keys, value) for (kind, *keys), value in paths)
    lines += [f"- †ref.{_segment(kind)}.<id>: the value of a stored reference" for kind in references]
    return _RULES + "\n".join(lines) + "\n"


def memory_section(body: bytes) -> str:
    """Return the section for an agent with the toolkit `memory`: the places in the memory, each with its type and
    glimpse."""
    document = load_value(body)
    if not document:
        return "# Memory\n\nNothing is remembered yet.\n"
    places = (("", keys, value) for (_, *keys), value in _paths("memory", document))
    return "# Memory\n\nAt the beginning of this task the memory holds:\n" + "\n".join(_lines(places)) + "\n"


def _lines(places: Iterator[tuple[str, Sequence[str], Any]]) -> list[str]:
    """Return the lines for the first places, and one that counts the rest."""
    lines = [_line(root, keys, value) for root, keys, value in islice(places, MAX_LINES)]
    left = sum(1 for _ in places)
    return [*lines, f"- and {left} more"] if left else lines


def _paths(kind: str, document: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Return the lines for a document, its keys, and the keys of the objects in it."""
    if not isinstance(document, Mapping) or not document:
        yield (kind,), document
        return
    for key, value in document.items():
        if len(key) > _KEY_CHARS:
            continue
        yield (kind, key), value
        if isinstance(value, Mapping):
            yield from (((kind, key, k), v) for k, v in value.items() if len(k) <= _KEY_CHARS)


def _line(root: str, keys: Sequence[str], value: Any) -> str:
    text = ".".join([*([root] if root else []), *map(_segment, keys)])
    if isinstance(value, Mapping):
        return f"- {text}: {'an empty object' if not value else f'an object of {len(value)} keys'}"
    glimpse = truncate_text(_single_line(glimpse_value(value, depth=1)), _GLIMPSE_CHARS)
    return f"- {text}: {json_type(value)}, {glimpse}"


def _segment(key: str) -> str:
    return key if _BARE.fullmatch(key) else _single_line(key)


def _single_line(value: Any) -> str:
    """Return a value as JSON on one line, so that stored text cannot imitate the lines of this section."""
    return to_printable_json(json.dumps(value, ensure_ascii=False))
