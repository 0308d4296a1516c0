"""The `scripted` interpreter: the prompt says which tools to call, so no model is needed.

The prompt of a run is JSON, `{"tool": name, "args": {...}}` or `{"script": [{"tool", "args"}, ...]}`. A call may
also be flat: `{"_tool": name, ...arguments}`. The
interpreter makes one call per turn, with the ids `scripted-tool-1`, `scripted-tool-2`, ...; a failed call
does not end the script. The last turn is the text `{"results": [{"tool", "result"} or {"tool", "error"},
...]}`.

Anywhere in `args`, an object whose only key is `$result` is replaced by the value of its JMESPath expression
over the list of this run's earlier results, in the order of the calls: `{"$result": "[0].id"}` is the `id` of
the first one. A JSON result is used as JSON, other results as text, and a failed one is null. If `prompt` is
an object, it is replaced and then serialized, so that the script of a sub-agent can be written inline.

The value that `resolveRef` read is not in the last turn, which is part of the journal: its result there is what
is on record of it. Expressions see the value.

The provider keeps no state: it reads from the messages after the prompt which calls were made.
"""

from __future__ import annotations

import json
import math
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from jmespath.exceptions import JMESPathError
from plangate.json_pointer import escape_step

from app.base import jmespath
from app.llm.messages import (
    Message,
    ModelRequest,
    StreamPart,
    Text,
    TextDelta,
    ToolResultPart,
    ToolUse,
    TurnDone,
    Usage,
)
from app.llm.pieces import message_text, prompt_index, split_text
from app.llm.provider import RequestRejected

FLAT = "_tool"
"""The key of a flat call that names its tool."""

MAX_ARGUMENT_DEPTH = 100
"""Maximum nesting depth of the arguments of one call."""

MAX_SEARCH_STEPS = 100_000
"""Limit of one expression, which is evaluated on the event loop."""

FORMAT_HELP = (
    'The scripted interpreter expects a prompt that is JSON: {"tool": "name", "args": {...}} or {"_tool": "name", '
    '...arguments} for one call, or {"script": [call, ...]} for several, with "answer" beside it for the final text.'
)


@dataclass(frozen=True, slots=True)
class ScriptStep:
    """One call of a script. `pointer` is the JSON pointer to its arguments in the prompt."""

    tool: str
    args: dict[str, Any]
    pointer: str


@dataclass(frozen=True, slots=True)
class Script:
    """The calls, and the final text if the prompt has one: a string as it is, another value as JSON."""

    steps: tuple[ScriptStep, ...]
    answer: Any = None

    def text(self, done: Sequence[ToolResultPart]) -> str:
        """Return the answer with its expressions replaced, or a summary of the results if there is none."""
        if self.answer is None:
            results = [_entry(step, result) for step, result in zip(self.steps, done, strict=False)]
            return _json({"results": results})
        replaced = _replace(self.answer, [_value(result) for result in done], "/answer")
        return replaced if isinstance(replaced, str) else _json(replaced)


class ScriptedProvider:
    """Follows the script in the prompt. Raises RequestRejected for a prompt without a script, before anything is
    called."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamPart, None]:
        at = prompt_index(request.messages)
        if at is None:
            raise RequestRejected(f"{FORMAT_HELP} This run has no prompt.")
        script = parse_script(message_text(request.messages[at]))
        done = _results_after(request.messages[at + 1 :])
        if len(done) < len(script.steps):
            step = script.steps[len(done)]
            arguments = _lenient_json(_arguments(step, [_value(result) for result in done]))
            call = ToolUse(f"scripted-tool-{len(done) + 1}", step.tool, arguments)
            yield TurnDone((call,), "tool_use", Usage(), request.model)
            return
        text = script.text(done)
        for piece in split_text(text):
            yield TextDelta(piece)
        yield TurnDone((Text(text),), "end_turn", Usage(), request.model)

    async def aclose(self) -> None:
        """Do nothing: there are no connections."""


def parse_script(prompt: str) -> Script:
    """Parse the script in a prompt. Raise RequestRejected, with the location, if it is invalid."""
    try:
        document = json.loads(prompt)
    except (ValueError, RecursionError) as error:
        raise RequestRejected(
            f"{FORMAT_HELP} This prompt is not: {error or 'it is nested too deeply'}."
        ) from error
    if not isinstance(document, dict):
        raise RequestRejected(f"{FORMAT_HELP} This prompt is another kind of JSON value.")
    if "script" not in document or FLAT in document:
        return Script((_step(document, ""),))
    if document.keys() - {"script", "answer"} or not isinstance(document["script"], list):
        raise RequestRejected(f"{FORMAT_HELP} `script` must be a list, and only `answer` may be beside it.")
    steps = tuple(_step(item, f"/script/{at}") for at, item in enumerate(document["script"]))
    _validate(document.get("answer"), "/answer", 1)
    try:
        _json(document.get("answer")).encode()
    except ValueError as error:
        raise RequestRejected(f"The `answer` of the script is not JSON: {error}.") from error
    return Script(steps, document.get("answer"))


def _step(item: Any, pointer: str) -> ScriptStep:
    if isinstance(item, dict) and FLAT in item:
        return _flat_step(item, pointer)
    if not isinstance(item, dict) or not isinstance(item.get("tool"), str) or not item["tool"]:
        raise RequestRejected(
            f"{FORMAT_HELP} At {pointer or 'the top'} there is no object with the name of a `tool`."
        )
    unknown = sorted(set(item) - {"tool", "args"})
    if unknown:
        raise RequestRejected(
            f"{FORMAT_HELP} At {pointer or 'the top'} there is the unknown key {unknown[0]!r}."
        )
    args = item.get("args", {})
    if not isinstance(args, dict):
        raise RequestRejected(f"{FORMAT_HELP} At {pointer}/args there is no object.")
    step = ScriptStep(item["tool"], args, f"{pointer}/args")
    _validate(args, step.pointer, 1)
    return step


def _flat_step(item: dict[str, Any], pointer: str) -> ScriptStep:
    """Return the step of a flat call: every other key is an argument."""
    args = dict(item)
    tool = args.pop(FLAT)
    if not isinstance(tool, str) or not tool:
        raise RequestRejected(f"{FORMAT_HELP} At {pointer}/{FLAT} there is no name of a tool.")
    _validate(args, pointer, 1)
    return ScriptStep(tool, args, pointer)


def _validate(value: Any, pointer: str, depth: int) -> None:
    """Validate every expression, so that a script with an invalid one does nothing at all."""
    if depth > MAX_ARGUMENT_DEPTH:
        raise RequestRejected(f"The script nests deeper than {MAX_ARGUMENT_DEPTH} levels at {pointer[:200]}.")
    if isinstance(value, list):
        for at, item in enumerate(value):
            _validate(item, f"{pointer}/{at}", depth + 1)
    elif isinstance(value, dict):
        if set(value) == {"$result"}:
            _validate_expression(value["$result"], pointer)
        for key, item in value.items():
            _validate(item, f"{pointer}/{escape_step(key)}", depth + 1)


def _validate_expression(expression: Any, pointer: str) -> str:
    if not isinstance(expression, str):
        raise RequestRejected(
            f'At {pointer} of the script, "$result" must be a JMESPath expression in a string.'
        )
    try:
        jmespath.compile_expression(expression)
    except JMESPathError as error:
        _reject_expression(expression, pointer, error)
    return expression


def _reject_expression(expression: str, pointer: str, error: JMESPathError) -> NoReturn:
    position = getattr(error, "lex_position", None)
    where = "" if position is None else f" at character {position}"
    reason = str(error).splitlines()[0].rstrip(":")
    raise RequestRejected(
        f"At {pointer} of the script, the JMESPath expression {expression!r} cannot be used{where}: {reason}"
    ) from error


def _arguments(step: ScriptStep, earlier: list[Any]) -> dict[str, Any]:
    replaced = {
        key: _replace(value, earlier, f"{step.pointer}/{escape_step(key)}")
        for key, value in step.args.items()
    }
    if set(step.args) == {"$result"}:
        whole = _replace(step.args, earlier, step.pointer)
        if not isinstance(whole, dict):
            raise RequestRejected(
                f"At {step.pointer} of the script, the value of the expression is not an object."
            )
        replaced = whole
    if isinstance(step.args.get("prompt"), dict) and not isinstance(replaced["prompt"], str):
        replaced["prompt"] = _lenient_json(replaced["prompt"])
    return replaced


def _replace(value: Any, earlier: list[Any], pointer: str) -> Any:
    if isinstance(value, list):
        return [_replace(item, earlier, f"{pointer}/{at}") for at, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    if set(value) != {"$result"}:
        return {key: _replace(item, earlier, f"{pointer}/{escape_step(key)}") for key, item in value.items()}
    expression = _validate_expression(value["$result"], pointer)
    try:
        return jmespath.search(expression, earlier, max_steps=MAX_SEARCH_STEPS)
    except JMESPathError as error:
        _reject_expression(expression, pointer, error)


def _results_after(messages: Sequence[Message]) -> list[ToolResultPart]:
    """Return the results of this run's calls, in the order of the calls."""
    answered = {
        block.tool_use_id: block
        for message in messages
        for block in message.blocks
        if isinstance(block, ToolResultPart)
    }
    calls = [block.id for message in messages for block in message.blocks if isinstance(block, ToolUse)]
    unanswered = [call for call in calls if call not in answered]
    if unanswered:
        raise RequestRejected(f"The call {unanswered[0]} of the script has no result yet.")
    return [answered[call] for call in calls]


def _value(result: ToolResultPart) -> Any:
    """Return what `$result` sees: the JSON of a result, else its text, or None if it failed."""
    return None if result.is_error else _parse_or_text(result.content)


def _entry(step: ScriptStep, result: ToolResultPart) -> dict[str, Any]:
    tool = step.tool.encode("utf-8", "replace").decode()
    content = result.content if result.on_record is None else result.on_record
    return {"tool": tool, "error" if result.is_error else "result": _parse_or_text(content)}


def _parse_or_text(content: str) -> Any:
    try:
        return _strict_loads(content)
    except (ValueError, RecursionError):
        return content


def _strict_loads(text: str) -> Any:
    """Parse JSON. Reject NaN, infinities, numbers that overflow, and lone surrogates."""
    value = json.loads(text, parse_constant=_reject_constant, parse_float=_parse_float)
    if "\\u" in text:
        _json(value).encode()
    return value


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _parse_float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"the number {digits[:40]} is too large")
    return number


def _lenient_json(value: Any) -> str:
    """Return JSON, or what a script has in place of it: NaN, infinities and lone surrogates. The call of a tool says
    what is wrong with its arguments."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
