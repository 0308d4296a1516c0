"""Regular expressions of tenants and models, on the engine that is linear in the text: no lookaround, no
back-references, and no pattern that stalls. Pure."""

from __future__ import annotations

import jsonschema_rs


class PatternRejected(ValueError):
    """It is no regular expression, or one that this engine does not know."""


class Pattern:
    """A regular expression that is looked for anywhere in a text."""

    def __init__(self, text: str, *, ignore_case: bool = False) -> None:
        """Raises PatternRefused, also for one that takes too much memory."""
        schema = {"pattern": f"(?i){text}" if ignore_case else text}
        try:
            self._validator = jsonschema_rs.Draft202012Validator(
                schema, pattern_options=jsonschema_rs.RegexOptions(), offline=True
            )
        except (jsonschema_rs.ValidationError, ValueError) as error:
            raise PatternRejected(
                "it is not a regular expression, or uses lookaround or back-references, which are not known here"
            ) from error

    def matches(self, text: str) -> bool:
        return bool(self._validator.is_valid(text))


def compile_glob(pattern: str) -> Pattern:
    """Matches whole paths: `*` and `?` within a name, `**` any number of directories, `[abc]` one of these, `[!abc]` one
    of the others. Raises PatternRefused."""
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
            held = pattern[at + 1 : end].replace("\\", "\\\\").replace("[", "\\[").replace("^", "\\^")
            out.append(f"[{'^/' + held[1:] if held.startswith('!') else held}]")
            at = end + 1
            continue
        out.append({"*": "[^/]*", "?": "[^/]"}.get(char) or escape(char))
        at += 1
    return Pattern(f"^(?:{''.join(out)})$")


def escape(text: str) -> str:
    """The text as a pattern that matches it alone."""
    return "".join(f"\\{char}" if char in "\\.+*?()|[]{}^$/-" else char for char in text)
