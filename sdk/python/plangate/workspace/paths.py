"""Validate paths in a workspace: the one place that checks names chosen by tenants and models. Pure."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from plangate.spec.lookalikes import skeletons

MAX_PATH_BYTES: Final = 1000
MAX_NAME_BYTES: Final = 255
MAX_PATH_DEPTH: Final = 32

_SCRIPTS: Final = ("LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE")
"""Scripts with letters that look alike: a word must not mix them."""

ROOT_PATHS: Final = ("", ".", "./")
"""The workspace itself."""

_INVISIBLE: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Invisible letters and marks, besides Unicode's categories C (other) and Z (separators)."""

_STYLES: Final = "\ufe0e\ufe0f"
"""Variation selectors, which keyboards add to symbols: ❤️."""

_SLASHES: Final = "∕⁄⧸․╱⟋"

_WORD: Final = re.compile(r"[^\W\d_]+")


class PathRejected(ValueError):
    """The path is not valid in a workspace; the message says why."""


def normalize(path: str) -> str:
    """Return the path as it is stored: composed (NFC), without `.`, empty names and a trailing slash. Raise
    PathRejected."""
    return _normalize(path, path)


def _normalize(path: str, original: str) -> str:
    for before, char in zip(" " + path, path, strict=False):
        if not (char in _STYLES and unicodedata.category(before) == "So"):
            _validate_char(original, char)
    if path.startswith("/"):
        raise path_error(
            original, "it is absolute: paths are relative to the workspace, such as notes/today.md"
        )
    if "\\" in path:
        raise path_error(original, "it contains a backslash; separate names with /")
    names = [unicodedata.normalize("NFC", name) for name in path.split("/") if name not in ("", ".")]
    if not names:
        raise path_error(original, "it names no file")
    if len(names) > MAX_PATH_DEPTH:
        raise path_error(original, f"it has {len(names)} names, and at most {MAX_PATH_DEPTH} are allowed")
    for name in names:
        _validate_name(original, name)
    joined = "/".join(names)
    if len(joined.encode()) > MAX_PATH_BYTES:
        raise path_error(
            original, f"it has {len(joined.encode())} bytes, and at most {MAX_PATH_BYTES} are allowed"
        )
    return joined


def normalize_prefix(prefix: str) -> str:
    """Return the prefix of a listing, by the same rules; a folder ends with a slash, "" is everything. Raise
    PathRejected.

    The last, partial name may end as no name does: `v1.` begins `v1.0`.
    """
    if prefix in ROOT_PATHS:
        return ""
    return _normalize(f"{prefix}0", prefix)[:-1]  # a digit belongs to no script and composes with nothing


def folder_prefix(path: str | None) -> str:
    """Return the prefix of a folder's content; "" is the whole workspace. Raise PathRejected."""
    return "" if path is None or path in ROOT_PATHS else normalize(path) + "/"


def skeleton(path: str) -> str:
    """Return a text that paths share if they look alike. Case distinguishes paths."""
    return "".join(_fold(char) for char in path if char not in _STYLES)


def _fold(char: str) -> str:
    if char.isascii():
        return char
    skeleton = min(skeletons(char))
    return skeleton.upper() if char.isupper() else skeleton


def ancestors(path: str) -> list[str]:
    """Return the folders that contain a path, from the top."""
    names = path.split("/")
    return ["/".join(names[:n]) for n in range(1, len(names))]


def path_error(path: str, why: str) -> PathRejected:
    quoted = path if len(path) <= 80 else path[:79] + "…"
    return PathRejected(f"The path {quoted!a} is not allowed: {why}.")


def _validate_char(path: str, char: str) -> None:
    kind = unicodedata.category(char)
    if kind[0] == "C" or char == "�" or (kind[0] == "Z" and char != " ") or _INVISIBLE.match(char):
        raise path_error(path, f"it contains {_char_name(char)}, which cannot be seen or typed")


def _validate_name(path: str, name: str) -> None:
    if name == "..":
        raise path_error(path, "it contains '..', and nothing leads out of the workspace")
    if name != name.strip(" ") or name.endswith("."):
        raise path_error(path, "a name in it begins or ends with a space, or ends with a dot")
    if len(name.encode()) > MAX_NAME_BYTES:
        raise path_error(
            path, f"a name in it has {len(name.encode())} bytes, and at most {MAX_NAME_BYTES} are allowed"
        )
    for char in name:
        if unicodedata.normalize("NFKC", char) != unicodedata.normalize("NFC", char) or char in _SLASHES:
            raise path_error(path, f"it contains {_char_name(char)}, which looks like another character")
    for word in _WORD.findall(name):
        scripts = {script for char in word for script in _SCRIPTS if _is_in_script(char, script)}
        if len(scripts) > 1:
            listed = " and ".join(sorted(script.capitalize() for script in scripts))
            raise path_error(path, f"a word in it mixes {listed} letters, which look alike")


def _is_in_script(char: str, script: str) -> bool:
    return unicodedata.name(char, "").startswith(script)


def _char_name(char: str) -> str:
    return f"U+{ord(char):04X} ({unicodedata.name(char, 'control character')})"
