"""Events for the eyes of a person: who speaks, what is called, what stays outside, what is decided and done.

Everything is plain text first; colours only help. Text of models and services is never read as markup, nor obeyed by
the terminal; of what is approved every character can be seen. What only an example knows, such as what its actions
mean, its own screen says: a subclass of `Screen`.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from plangate.printable import escape_invisible, to_printable, to_printable_json
from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from examples.common.graph import DAGGER, Edges, meaning

Event = Mapping[str, Any]

NAME_WIDTH = 11
DEFAULT_TENANT = "local"
MAX_TEXT_CHARS = 400
MAX_ARGUMENT_CHARS = 60
AWAIT = "--retry 60 --retry-delay 1 --retry-connrefused"


@dataclass
class QueryState:
    """What the journal told so far and the end of the demo comes back to."""

    query_id: str = ""
    state_of: str = ""  # the thread, where something was written to its state
    plan_id: str = ""
    plan_label: str = ""
    approval_id: str = ""
    approval_kind: str = ""
    artifact_id: str = ""
    decision: str = ""
    feedback: str = ""
    references: dict[str, int | None] = field(default_factory=dict)
    cost: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""


class Screen:
    """Prints the events of queries as they come, and remembers what the end needs."""

    styles: ClassVar[Mapping[str, str]] = {}
    """The colours of the agents."""

    values: ClassVar[str] = "the value"
    """What references hold."""

    def __init__(self, console: Console, *, scripted: bool) -> None:
        self.console = console
        self.seen = QueryState()
        self._scripted = scripted
        self._speaking: tuple[str, str] | None = None
        self._said: list[str] = []
        self._shows: dict[str, Callable[[Event], None]] = {
            "tool-invocation": self._tool,
            "tool-progress": self._progress,
            "plan-status-change": self._plan,
            "action-status-change": self._action,
            "state-write": self._write,
            "approval-decision": self._decision,
            "step-retry": self._retry,
            "data-cost-summary": self._cost,
            "error": self._error,
        }

    # -- what an example says in its own words ---------------------------------------------------------------

    def title(self, subject: Mapping[str, Any]) -> str:
        """Return the name of a plan that waits for approval."""
        return f"{subject['specName']}, revision {subject['revision']}"

    def action_text(self, action: Mapping[str, Any]) -> str:
        """Return what an action does."""
        return to_line(action["payload"])

    def glimpse_text(self, reference: Mapping[str, Any]) -> str:
        """Return what agents see of a reference."""
        return truncate(to_line(reference["glimpse"]), MAX_TEXT_CHARS)

    def result_text(self, event: Event) -> str | None:
        """Return what a tool's result says that is worth a line."""
        return None

    # -- as it happens ---------------------------------------------------------------------------------------

    def show(self, event: Event) -> None:
        """Print one event if it matters to a person."""
        event = escape_line(event)
        self.seen.query_id = event.get("queryId") or self.seen.query_id
        if event["type"] == "text":
            self._hear(event)
            return
        if event["type"] == "step-retry" and self._speaking == (event["agent"], event["workId"]):
            self._said.clear()
        self._speak()
        shown = self._shows.get(event["type"])
        if shown is not None:
            shown(event)

    def line(self, agent: str | None, text: Text | str, style: str = "") -> None:
        """Print the name of an agent, or none, and what it does."""
        row = Table.grid(padding=(0, 2), pad_edge=False)
        row.add_column(width=NAME_WIDTH, no_wrap=True)
        row.add_column(overflow="fold")
        row.add_row(Text(agent or "", self.styles.get(agent or "", "")), Text(style=style).append(text))
        self.console.print(row)

    def _hear(self, event: Event) -> None:
        speaking = (event["agent"], event["workId"])
        if self._speaking != speaking:
            self._speak()
            self._speaking = speaking
        self._said.append(event["text"])

    def _speak(self) -> None:
        """Print what was heard, as one paragraph. The text of a script is the JSON of its results, seen already."""
        text, speaking = "".join(self._said).strip(), self._speaking
        self._said.clear()
        self._speaking = None
        if text and speaking and not self._scripted:
            self.line(speaking[0], f"“{truncate(text, MAX_TEXT_CHARS)}”", "italic")

    def _tool(self, event: Event) -> None:
        name, agent = event["toolName"], event["agent"]
        args = event["args"] if isinstance(event.get("args"), dict) else {}
        if event["state"] == "error":
            self.line(agent, f"{name} failed: {event['error']['message']}", "red")
        elif event["state"] == "call":
            self.line(agent, self._call(name, args))
        else:
            self._result(event)

    def _call(self, name: str, args: Mapping[str, Any]) -> Text:
        """Return a call in a line: its arguments shortened, those of known tools in words."""
        if name == "call_agent":
            prompt, called = args.get("prompt"), str(args.get("agent"))
            steps = _script_steps(prompt)
            told = (
                f"with a script: {', '.join(steps)}"
                if steps
                else f"“{truncate(str(prompt), MAX_TEXT_CHARS)}”"
            )
            return Text.assemble("asks ", (called, self.styles.get(called, "")), f" {told}")
        if name == "storePlan":
            body = args.get("body") if isinstance(args.get("body"), dict) else {}
            actions = (body or {}).get("actions") or []
            return Text.assemble(
                "calls ", (name, "bold"), f" {args.get('specName')} with {len(actions)} actions"
            )
        shown = " ".join(f"{key}={_argument(value)}" for key, value in args.items())
        return Text.assemble("calls ", (name, "bold"), f" {shown}")

    def _result(self, event: Event) -> None:
        """Only what says something new: a reference, the end of a plan, what the example knows."""
        result = event.get("result")
        if not isinstance(result, dict):
            return
        if {"kind", "id", "glimpse"} <= result.keys():
            self.seen.references.setdefault(f"{result['kind']}/{result['id']}", None)
            self.line(
                None, Text.assemble("→ reference ", (handle(result), "bold"), ". All that agents see of it:")
            )
            self.line(None, self.glimpse_text(result), "dim")
        elif "entitiesAffected" in result:
            self.line(None, f"→ {result['summary']}", "bold")
        elif (text := self.result_text(event)) is not None:
            self.line(None, f"→ {text}")

    def _progress(self, event: Event) -> None:
        self.line(None, f"… {event['label']}", "dim")

    def _plan(self, event: Event) -> None:
        data, seen = event["data"], self.seen
        known = seen.plan_id == data["planId"]
        seen.plan_id, label = data["planId"], data["label"]
        if data["to"] == "pending_approval":  # an open gate, no status
            label = "waits for approval"
        else:
            seen.plan_label = label
        name = "plan" if known else f"plan {data['planId']}"
        self.line(None, f"→ {name}, revision {data['revision']}: {label}", "yellow")

    def _action(self, event: Event) -> None:
        data = event["data"]
        failed = data["to"] in ("failed", "unknown")
        self.line(None, f"  action {data['index']} {data['kind']}: {data['to']}", "red" if failed else "dim")

    def _write(self, event: Event) -> None:
        data = event["data"]
        if data["path"].startswith(f"{DAGGER}state."):
            self.seen.state_of = event["threadId"]
        how = "" if data["method"] == "set" else f", {data['method']}"
        self.line(None, f"  → {data['path']}{how}", "dim")

    def _decision(self, event: Event) -> None:
        data = event["data"]
        self.seen.decision, self.seen.feedback = data["outcome"]["outcome"], data.get("feedback") or ""
        by = f" by {data['decidedBy']}" if data.get("decidedBy") else ""
        feedback = f": {self.seen.feedback}" if self.seen.feedback else ""
        self.line(None, f"→ decision: {self.seen.decision}{by}{feedback}", "bold yellow")

    def _retry(self, event: Event) -> None:
        self.line(event["agent"], f"the turn is repeated: {event['reason']}", "red")

    def _cost(self, event: Event) -> None:
        self.seen.cost = event["data"]

    def _error(self, event: Event) -> None:
        self.seen.error = f"{event['error']['message']} ({event['error']['code']})"

    # -- the gates -------------------------------------------------------------------------------------------

    def gate(self, approval: Mapping[str, Any], subject: Mapping[str, Any]) -> None:
        """Print what a decision would approve, from the bytes of the approval's subject and nothing else."""
        self.seen.approval_id, self.seen.approval_kind = approval["id"], approval["kind"]
        if approval["kind"] == "tool":
            shown, title = [_arguments(subject["args"])], f"The call of {subject['tool']}"
        else:
            shown, title = self._planned(subject), self.title(subject)
        note = Text(
            f"\nsha256 {approval['digest']} of the bytes that are approved; above they are in words.", "dim"
        )
        self.console.print(
            Panel(
                Group(*shown, note),
                title=Text(f"{escape_line(title)}: approve it?"),
                title_align="left",
                border_style="yellow",
            )
        )

    def _planned(self, subject: Mapping[str, Any]) -> list[Any]:
        """Return a plan: what it is for, its actions, and what its references are."""
        body = subject["body"]
        actions = Table.grid(padding=(0, 2))
        actions.add_column(justify="right", no_wrap=True)
        actions.add_column(ratio=1, overflow="fold")
        edges = Edges(subject)
        for number, action in enumerate(body["actions"]):
            text = Text(to_printable(action["kind"]), "bold")
            text.append(f": {escape_line(self.action_text(action))}", "not bold")
            for reference in action["references"]:
                text.append(f" → {handle(reference)}", "not bold dim")
            if waits := edges.text(number):
                text.append(f"\n{to_printable(waits)}", "not bold dim")
            actions.add_row(str(number), text)
        references = Text()
        for reference in subject["references"]:
            self.seen.references[f"{reference['kind']}/{reference['id']}"] = reference.get("sizeBytes")
            size = f", {reference['sizeBytes']:,} bytes" if "sizeBytes" in reference else ""
            references.append(f"\n{handle(reference)}{size}\n", "bold")
            references.append(escape_line(self.glimpse_text(reference)), "dim")
        parts = [references, *self._stands_for(subject)]
        return [Text(to_printable(body["summary"]) + "\n"), actions, *(part for part in parts if part)]

    def _stands_for(self, subject: Mapping[str, Any]) -> list[Any]:
        """Return what each variable of a plan stands for: its glimpse, which is the value if that is short, or whose result
        it is."""
        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True)
        table.add_column(ratio=1, overflow="fold")
        for variable in subject.get("variables", ()):
            table.add_row(Text(to_printable(variable["variable"]), "bold"), Text(meaning(variable)))
        return [Text(" "), table] if table.row_count else []

    # -- the end ---------------------------------------------------------------------------------------------

    def end(self, actions: list[dict[str, Any]], wrote: Mapping[str, str], model: str | None) -> None:
        """Print the plan's status, its actions with what they touched, what they wrote (by where it is), and what the
        model used."""
        self._speak()
        self.console.print()
        seen = self.seen
        if seen.error:
            self.line("error", seen.error, "bold red")
        if not seen.plan_id:
            self.line("plan", "none was stored", "bold red")
        else:
            self.line("plan", Text.assemble((_plan_state(seen), "bold"), f"  {seen.plan_id}"))
        told = None
        for action in escape_line(actions):
            outcome = action["status"] if action["workId"] == told else _outcome(action)
            self.line("action", f"{action['index']} {action['kind']}: {outcome}")
            told = action["workId"]  # those that were dispatched together share what is said of them
        for where, what in wrote.items():
            self.line(where, what)
        for reference, size in seen.references.items():
            kind, _, id_ = reference.partition("/")
            kept = f", {size:,} bytes, in no prompt and in no event" if size is not None else ""
            self.line("reference", f"{handle({'kind': kind, 'id': id_})}{kept}")
        self.line(
            "model", f"{model}: {usage_text(seen.cost)}" if model else "none: scripts, no tokens, no cost"
        )
        self.line("query", seen.query_id)

    def look(self, url: str, key: str, work: str, *, tenant: str, serve: str | None = None) -> None:
        """Print the commands that show it in one screen, and over HTTP. `key` is shell that gives the key, never the
        key; `work` is the command for the screen, `serve` starts the service that ended with the demo."""
        seen = self.seen
        start = [f"{serve} &", f"curl -sf -o /dev/null {AWAIT} {url}/readyz"] if serve else []
        again = ", with the service started again" if serve else ""
        self._commands(
            f"What was done, what it produced and what it cost, in one screen{again}:",
            [*start, f"{work} --url {url}"],
        )
        paths = {
            f"/queries/{seen.query_id}/events": "the journal",
            f"/queries/{seen.query_id}/work": "who did what",
        }
        if seen.plan_id:
            paths[f"/plans/{seen.plan_id}"] = "the plan"
            paths[f"/plans/{seen.plan_id}/actions"] = "its actions"
        if seen.approval_id:
            paths[f"/approvals/{seen.approval_id}/subject"] = "the bytes that were decided on"
        if seen.artifact_id:
            paths[f"/artifacts/{seen.artifact_id}/lineage"] = "where it comes from"
            paths[f"/artifacts/{seen.artifact_id}/content"] = "what is in it"
        if seen.state_of:
            paths[f"/plans/{seen.plan_id}/graph"] = "who waits for whom"
            paths[f"/threads/{seen.state_of}/state"] = "what the actions wrote"
            paths[f"/threads/{seen.state_of}/state/log"] = "each write: where to, by which call"
        for reference in seen.references:
            paths[f"/references/{reference}"] = self.values
        of = "" if tenant == DEFAULT_TENANT else f' -H "Plangate-Tenant: {tenant}"'
        curls = (f'curl -s -w "\\n" -H "$auth"{of} {url}{path}  # {what}' for path, what in paths.items())
        self._commands("The same over HTTP:", [f'auth="Authorization: Bearer {key}"', *curls])

    def _commands(self, title: str, lines: Iterable[str]) -> None:
        self.console.print(f"\n{title}")
        for line in lines:
            self.console.print(Text("  " + line), soft_wrap=True)


def handle(reference: Mapping[str, Any]) -> str:
    """Kind and the beginning of the id: enough for eyes."""
    id_ = reference["id"]
    return f"{reference['kind']}/{id_ if len(id_) <= 12 else id_[:10] + '…'}"


def _plan_state(seen: QueryState) -> str:
    """Return what people read in place of the plan's status, and what was decided if that was not to approve it."""
    said = {"reject": ", rejected", "revise": ", to be revised"} if seen.approval_kind == "plan" else {}
    return f"{seen.plan_label}{said.get(seen.decision, '')}"


def usage_text(cost: Mapping[str, Any]) -> str:
    """Tokens, and the cost where the price is known."""
    usage = cost.get("usage", {})
    read = usage.get("inputTokens", 0) + usage.get("cacheReadTokens", 0) + usage.get("cacheWriteTokens", 0)
    money = f", {cost['costUsd']:.4f} USD" if cost.get("costUsd") is not None else ", price not known"
    return f"{read:,} tokens in, {usage.get('outputTokens', 0):,} out{money}"


def key_from_file(path: Path) -> str:
    """Shell that gives the key in a file without showing it."""
    return f"$(cat {shlex.quote(str(path))})"


def to_line(value: Any) -> str:
    """Return the whole of a value on a line, every character to be seen."""
    return (
        to_printable(value)
        if isinstance(value, str)
        else to_printable_json(json.dumps(value, ensure_ascii=False))
    )


def escape_line(value: Any) -> Any:
    """Return the same, with nothing in its strings that a terminal would obey: white space is a space."""
    match value:
        case str():
            return escape_invisible(value, str.isprintable, lambda c: " " if c.isspace() else to_printable(c))
        case Mapping():
            return {key: escape_line(part) for key, part in value.items()}
        case list():
            return [escape_line(part) for part in value]
    return value


def truncate(text: str, limit: int) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def _argument(value: Any) -> str:
    """Return an argument in a few characters."""
    if isinstance(value, dict) and value.keys() == {"kind", "id"}:
        return handle(value)
    return truncate(to_line(value), MAX_ARGUMENT_CHARS)


def _arguments(args: Mapping[str, Any]) -> Table:
    """All arguments, to the last character."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(ratio=1, overflow="fold")
    for key, value in args.items():
        table.add_row(Text(to_printable(key), "bold"), Text(to_line(value)))
    return table


def _script_steps(prompt: Any) -> list[str]:
    """Return the tools that a script calls; empty for a prompt in words."""
    if isinstance(prompt, str):
        try:
            prompt = json.loads(prompt)
        except ValueError:
            return []
    script = prompt.get("script") if isinstance(prompt, dict) else None
    return [step["tool"] for step in script] if isinstance(script, list) else []


def _outcome(action: Mapping[str, Any]) -> str:
    result, error = action.get("result") or {}, action.get("error") or {}
    said = error.get("message") or result.get("summary") or ""
    return f"{action['status']}{': ' if said else ''}{said}"
