"""`plangate work`: what was done, what it produced and what it cost, in one screen. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from plangate.cli.terminal_text import (
    escape_text,
    format_duration,
    format_money,
    format_size,
    plural,
    table,
    total_tokens,
    truncate,
    wrap,
)
from plangate.cli.watch import output_lines, resume_command, settle_command

MIN_TREE_LINES = 8  # of the tree, however small the screen
OUTPUT_LINES = 3
ERROR_LINES = 6
RESULT_LINES = 4  # of all plans together
MAX_PLANS = 3
MAX_ARTIFACTS = 6
MAX_UNKNOWN = 4
NAMES_WIDTH = 60
WASTED_STATUSES = ("failed", "cancelled")

Record = dict[str, Any]
Action = tuple[int, str]
"""An action of a plan: its index and its kind."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the tree: a record, or several of one name that ended alike; of actions, those of one kind."""

    depth: int
    what: str
    status: str
    ms: float | None
    rollup: Record | None = None
    count: int = 1
    actions: tuple[Action, ...] = ()

    @property
    def group_key(self) -> tuple[object, ...]:
        """Return the key by which equal lines are merged."""
        return self.depth, sorted({kind for _, kind in self.actions}) or self.what, self.status

    def cells(self) -> list[str]:
        spent = self.rollup or {}
        used = total_tokens(spent["usage"]) if spent.get("modelCalls") else 0
        times = f" x{self.count}" if self.count > 1 and not self.actions else ""
        what = join_names(self.actions) if self.actions else self.what
        return [
            "  " * self.depth + escape_text(what) + times,
            escape_text(self.status),
            format_duration(self.ms),
            plural(used, "token") if used else "",
            format_money(spent.get("costUsd")),
        ]


def join_names(actions: Sequence[Action]) -> str:
    """Return actions by index and kind, as the API and `plangate watch` name them.

    Such as `action 3 notify`, or `actions 0-7 notify, 8 refund`.
    """
    parts = []
    for (_, kind), run in groupby(
        enumerate(sorted(actions)), key=lambda item: (item[1][0] - item[0], item[1][1])
    ):
        first, *more = [index for _, (index, _) in run]
        parts.append(f"{first}-{more[-1]} {kind}" if more else f"{first} {kind}")
    return f"action{'' if len(actions) == 1 else 's'} {', '.join(parts)}"


@dataclass(slots=True)
class Tree:
    """The records below a query by their parents, and which actions those of dispatches carry out."""

    top: Record
    actions: Mapping[str, Sequence[Action]] = field(default_factory=dict)
    children: dict[str | None, list[Record]] = field(default_factory=dict)

    @classmethod
    def from_record(cls, top: Record, actions: Mapping[str, Sequence[Action]] | None = None) -> Tree:
        tree = cls(top, actions or {})
        for record in top["below"]:
            tree.children.setdefault(record["parentId"], []).append(record)
        for below in tree.children.values():  # those that were dispatched together began in no order
            if all(record["id"] in tree.actions for record in below):
                below.sort(key=lambda record: min(tree.actions[record["id"]]))
        return tree

    def below(self, record: Record, *kinds: str) -> list[Record]:
        return [r for r in self.children.get(record["id"], ()) if not kinds or r["kind"] in kinds]

    def lines(self) -> list[Line]:
        """Return each record that is not a model call, depth first. A call of an agent and its run share a line."""
        out: list[Line] = []
        stack = [(r, 0) for r in reversed(self.below(self.top))]
        while stack:
            record, depth = stack.pop()
            if record["kind"] == "model_call":
                continue
            runs = self.below(record, "agent") if record["kind"] == "tool_call" else []
            visible = runs[0] if runs else record
            out.append(self._line(visible, record, depth))
            below = [r for r in self.below(record) if r not in runs] if runs else []
            below += self.below(visible)
            stack += [(r, depth + 1) for r in reversed(below)]
        return out

    def _line(self, visible: Record, record: Record, depth: int) -> Line:
        what = str(visible["name"])
        if visible["kind"] == "agent":
            calls = len(self.below(visible, "model_call"))
            what = f"{what} ({plural(calls, 'model call')})" if calls else what
        elif visible["kind"] in ("plan_execution", "action", "predicate"):
            what = f"{ {'plan_execution': 'plan'}.get(visible['kind'], visible['kind']) } {what}"
        carried_out = tuple(self.actions.get(visible["id"], ()))
        status, ms = record["status"], record["durationMs"]
        return Line(depth, what, status, ms, record["rollup"], actions=carried_out)


def fold(lines: Sequence[Line], room: int) -> list[Line]:
    """Fold the lines into at most `room` lines, and count what is left out.

    First, neighbors with the same text become one line; then the deepest lines are dropped, except the first
    of each group; then the last lines.
    """
    if len(lines) <= room:
        return list(lines)
    short = list(_group_alike(lines))
    if len(short) <= room:
        return short
    room -= 1
    for depth in range(max(line.depth for line in short), -1, -1):
        short = list(_group_alike([line for line in short if line.depth <= depth]))
        free = room - sum(line.depth < depth for line in short)
        if free >= 0 or depth == 0:
            break
    visible_lines: list[Line] = []
    for line in short:
        if line.depth < depth or free > 0:
            visible_lines.append(line)
            free -= line.depth == depth
    left = len(lines) - sum(line.count for line in visible_lines)
    return [*visible_lines, Line(0, f"{left:,} more: --all shows them", "", None)] if left else visible_lines


def _group_alike(lines: Sequence[Line]) -> Iterator[Line]:
    """Merge neighbors with one name and status and nothing below them into one line."""
    pending: Line | None = None
    for n, line in enumerate(lines):
        has_below = n + 1 < len(lines) and lines[n + 1].depth > line.depth
        same = pending is not None and pending.group_key == line.group_key
        if same and pending is not None and not has_below:
            pending = _merge_lines(pending, line)
            continue
        if pending is not None:
            yield pending
        pending = None if has_below else line
        if has_below:
            yield line
    if pending is not None:
        yield pending


def _merge_lines(one: Line, other: Line) -> Line:
    ms = None if one.ms is None or other.ms is None else one.ms + other.ms
    spent, more = one.rollup or {}, other.rollup or {}
    costs = [s["costUsd"] for s in (spent, more) if s.get("costUsd") is not None]
    usage: Counter[str] = Counter(spent.get("usage", {}))
    usage.update(more.get("usage", {}))
    rollup = {
        "modelCalls": spent.get("modelCalls", 0) + more.get("modelCalls", 0),
        "usage": usage,
        "costUsd": sum(costs) if costs else None,
    }
    count, actions = one.count + other.count, one.actions + other.actions
    return replace(one, count=count, ms=ms, rollup=rollup, actions=actions)


def wasted_usage(tree: Tree) -> tuple[int, float | None]:
    """Return the tokens and dollars that failed or canceled records spent, including their descendants, each counted
    once."""
    used, cost = 0, None
    stack = [tree.top]
    while stack:
        record = stack.pop()
        if record["status"] in WASTED_STATUSES:
            used += total_tokens(record["rollup"]["usage"])
            if record["rollup"]["costUsd"] is not None:
                cost = (cost or 0.0) + record["rollup"]["costUsd"]
        else:
            stack += tree.below(record)
    return used, cost


def render_work(
    query: Record,
    top: Record,
    artifacts: Sequence[Record],
    limit: str | None,
    *,
    plans: Sequence[Record] = (),
    calls: Sequence[Record] = (),
    actions: Mapping[str, Sequence[Action]] | None = None,
    unknown: Sequence[tuple[str, Sequence[Action]]] = (),
    height: int | None,
    width: int,
) -> list[str]:
    """Return the lines that `plangate work` prints.

    `artifacts` includes superseded and withdrawn ones, newest first. `height` is the number of lines that fit, or None for
    all. `limit` is the limit at which the query waits. `calls` are the calls for client processes that it
    waits for. `actions` are keyed by the work record that carries them out. `unknown` are the actions to
    settle, by plan and dispatch.
    """
    tree = Tree.from_record(top, actions)
    head = _head(query, top, limit, width) + _callers(calls, width) + _unknown(unknown)
    tail = [*_result_lines(query, plans, artifacts, width), *_cost(tree, width)]
    lines = tree.lines()
    if height is not None:
        lines = fold(lines, max(height - len(head) - len(tail) - 1, MIN_TREE_LINES))
    done = table([line.cells() for line in lines], [max(width - 48, 30), 10, 12, 18, 10])
    return [*head, "", *done, *tail]


def _head(query: Record, top: Record, limit: str | None, width: int) -> list[str]:
    duration = format_duration(top["durationMs"])
    state = escape_text(query["status"])
    if query["reason"] and query["reason"] != query["status"]:
        state += f" ({escape_text(query['reason'])}{f': {escape_text(limit)}' if limit else ''})"
    by_agent = f", by {escape_text(query['agent'])}" if query["agent"] else ""
    lines = [f"{escape_text(query['id'])}  {state}{f' after {duration}' if duration else ''}{by_agent}"]
    if query["prompt"]:
        lines.append(truncate(f"asked: {query['prompt']}", width))
    if query.get("error"):
        error = f"{query['error'].get('code')}: {query['error'].get('message')}"
        first, *more = wrap(error, width - len("error: "), ERROR_LINES)
        lines += [f"error: {first}", *(f"       {line}" for line in more)]
    lines += [
        f"waits: plangate approvals approve {escape_text(id)}" for id in query.get("openApprovals") or ()
    ]
    if limit:
        lines.append(f"waits: {resume_command(query['id'], limit)}")
    return lines


def _callers(calls: Sequence[Record], width: int) -> list[str]:
    """Return the tools whose client processes a query waits for."""
    waits = Counter((call["status"], call["name"], call.get("claimedBy")) for call in calls)
    lines = []
    for (status, name, by), count in waits.items():
        if status == "open":
            text = f"waits: {plural(count, 'call')} of {name} open: start the program that serves {name}"
        elif status == "claimed":
            text = f"waits: {plural(count, 'call')} of {name} taken by {by}"
        else:
            continue
        lines.append(truncate(text, width))
    return lines


def _unknown(dispatches: Sequence[tuple[str, Sequence[Action]]]) -> list[str]:
    """Return the lines for actions to settle; the actions of one dispatch are settled together."""
    visible = dispatches if len(dispatches) <= MAX_UNKNOWN else dispatches[:MAX_UNKNOWN]
    lines = [
        f"waits: {settle_command(plan, min(actions)[0])} at {truncate(join_names(actions), NAMES_WIDTH)}"
        for plan, actions in visible
    ]
    more = len(dispatches) - len(visible)
    return [*lines, f"waits: {more:,} more like that: `plangate watch` names each"] if more else lines


def _result_lines(
    query: Record, plans: Sequence[Record], artifacts: Sequence[Record], width: int
) -> list[str]:
    active = [a for a in artifacts if a.get("status") not in ("superseded", "withdrawn")]
    each = max(RESULT_LINES // max(len(plans), 1), 1)
    lines = [f"  {line}" for plan in plans[:MAX_PLANS] for line in plan_lines(plan, width - 2, each)]
    lines += [f"  {artifact_line(a)}" for a in active[:MAX_ARTIFACTS]]
    more = f"plangate artifacts --query {escape_text(query['id'])}"
    if len(active) > MAX_ARTIFACTS:
        lines.append(f"  {plural(len(active) - MAX_ARTIFACTS, 'more artifact')}: {more}")
    if len(active) < len(artifacts):
        left_out = plural(len(artifacts) - len(active), "artifact")
        lines.append(f"  {left_out} superseded or withdrawn: {more} --superseded")
    answer = [line for line in output_lines(query.get("output")) if line.strip()]
    lines += [f"  {truncate(line, width - 2)}" for line in answer[:OUTPUT_LINES]]
    if len(answer) > OUTPUT_LINES:
        lines.append(f"  {plural(len(answer) - OUTPUT_LINES, 'more line')} of the answer: --json has it")
    return ["", "produced:", *(lines or ["  nothing"])]


def plan_state(plan: Record) -> str:
    """Return what people read in place of a plan's status, and whether its revision was rejected or sent back."""
    label, decided = plan.get("label") or plan["status"], plan.get("decision")
    suffixes = {"reject": ", rejected", "revise": ", to be revised"}
    return f"{label}{suffixes.get(decided or '', '')}"


def plan_lines(plan: Record, width: int, most: int) -> list[str]:
    """Return the lines of a plan: its status, and the summary of its execution or the feedback of its approver.

    The text follows on the same line if it fits, else below in at most `most` lines.
    """
    result = plan.get("result")
    note = result.get("summary") if isinstance(result, dict) else None
    text = escape_text(note or plan.get("feedback") or "")
    line = (
        f"plan {escape_text(plan['specName'])} ({escape_text(plan['id'])}): {escape_text(plan_state(plan))}"
    )
    whole = f"{line}: {text}" if text else line
    if len(whole) <= width:
        return [whole]
    return [truncate(line, width), *(f"  {line}" for line in wrap(text, width - 2, most))]


def artifact_line(artifact: Record) -> str:
    """Return one line for an artifact, without its content."""
    agent = (artifact.get("producer") or {}).get("agent")
    text = ", ".join(escape_text(part) for part in (artifact["channel"], agent, artifact["id"]) if part)
    title = f": {truncate(artifact['title'], 60)}" if artifact.get("title") else ""
    return f"{truncate(artifact['path'], 80)} ({text}){title}"


def _cost(tree: Tree, width: int) -> list[str]:
    spent = tree.top["rollup"]
    usage, calls = spent["usage"], spent["modelCalls"]
    cached = usage["cacheReadTokens"] + usage["cacheWriteTokens"]
    read = f"{usage['inputTokens'] + cached:,} tokens in"
    read += f" ({usage['cacheReadTokens']:,} of them cached)" if usage["cacheReadTokens"] else ""
    cost = format_money(spent["costUsd"]) or ("no price is known" if spent["unpricedCalls"] else "$0.00")
    if spent["costUsd"] is not None and spent["unpricedCalls"]:
        cost += f" and {plural(spent['unpricedCalls'], 'call')} without a known price"
    lines = [f"{cost}; {plural(calls, 'model call')}, {read}, {usage['outputTokens']:,} out"]
    used, lost = wasted_usage(tree)
    if used:
        lines.append(
            f"in vain: {plural(used, 'token')}{f', {format_money(lost)}' if lost is not None else ''}"
        )
    kept_out_bytes = spent["references"]["keptOutBytes"]
    if kept_out_bytes:
        lines.append(f"kept out of prompts: {format_size(kept_out_bytes)}")
    counts = Counter(r["kind"] for r in tree.top["below"])
    counts["action"] = sum(
        len(tree.actions.get(r["id"], "1")) for r in tree.top["below"] if r["kind"] == "action"
    )
    done = [
        plural(counts[kind], name)
        for kind, name in (
            ("agent", "agent run"),
            ("tool_call", "tool call"),
            ("action", "dispatched action"),
        )
        if counts[kind]
    ]
    if done:
        lines.append(", ".join(done))
    return ["cost:", *(f"  {truncate(line, width - 2)}" for line in lines)]
