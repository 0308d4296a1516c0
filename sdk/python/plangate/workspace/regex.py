"""Regular expressions of tenants and models, on an engine with linear time. Pure.

It has no lookaround and no backreferences, so no pattern can stall it.
"""

from __future__ import annotations

import jsonschema_rs


class PatternRejected(ValueError):
    """The pattern is not a regular expression, or the engine does not support it."""


class Pattern:
    """A regular expression that may match anywhere in a text."""

    def __init__(self, text: str, *, ignore_case: bool = False) -> None:
        """Compile the pattern. Raise PatternRejected, also if it would need too much memory."""
        schema = {"pattern": f"(?i){text}" if ignore_case else text}
        try:
            self._validator = jsonschema_rs.Draft202012Validator(
                schema, pattern_options=jsonschema_rs.RegexOptions(), offline=True
            )
        except (jsonschema_rs.ValidationError, ValueError) as error:
            raise PatternRejected(
                "it is not a valid regular expression, or it uses lookaround or backreferences, which are not supported"
            ) from error

    def matches(self, text: str) -> bool:
        """Return whether the pattern matches anywhere in the text."""
        return bool(self._validator.is_valid(text))


def compile_glob(pattern: str) -> Pattern:
    """Return a pattern that matches whole paths. Raise PatternRejected.

    `*` and `?` match within a name, `**` matches any number of directories, `[abc]` one of these characters,
    `[!abc]` any other one.
    """
    out, at = [], 0
    while at < len(pattern):
        char = pattern[at]
        if pattern.startswith("**/", at) and (at == 0 or pattern[at - 1] == "/"):
            out.append("(?:[^/]+/)*")
            at += 3
            continue
        if pattern.startswith("**", at):
            out.append(".*")
            at += 2
            continue
        end = pattern.find("]", at + 2) if char == "[" else -1
        if end > 0:
            members = pattern[at + 1 : end].replace("\\", "\\\\").replace("[", "\\[").replace("^", "\\^")
            out.append(f"[{'^/' + members[1:] if members.startswith('!') else members}]")
            at = end + 1
            continue
        out.append({"*": "[^/]*", "?": "[^/]"}.get(char) or escape(char))
        at += 1
    return Pattern(f"^(?:{''.join(out)})$")


def escape(text: str) -> str:
    """Return a pattern that matches exactly this text."""
    return "".join(f"\\{char}" if char in "\\.+*?()|[]{}^$/-" else char for char in text)
