"""`plangate work`: what was done, what it produced and what it cost, in one screen. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from app.commands.remote.terminal_text import cut, duration, money, plural, safe, size, table, tokens, wrapped
from app.commands.remote.watch import higher, output_lines, settled

FEWEST_LINES = 8  # of the tree, however small the screen
OUTPUT_LINES = 3
ERROR_LINES = 6
RESULT_LINES = 4  # of all plans together
MOST_PLANS = 3
MOST_PUBLISHED = 6
MOST_UNKNOWN = 4
NAMED_WIDTH = 60
IN_VAIN = ("failed", "cancelled")

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
    def alike(self) -> tuple[object, ...]:
        """What is the same in lines that may become one."""
        return self.depth, sorted({kind for _, kind in self.actions}) or self.what, self.status

    def cells(self) -> list[str]:
        spent = self.rollup or {}
        used = tokens(spent["usage"]) if spent.get("modelCalls") else 0
        times = f" x{self.count}" if self.count > 1 and not self.actions else ""
        what = named(self.actions) if self.actions else self.what
        return [
            "  " * self.depth + safe(what) + times,
            safe(self.status),
            duration(self.ms),
            plural(used, "token") if used else "",
            money(spent.get("costUsd")),
        ]


def named(actions: Sequence[Action]) -> str:
    """`action 3 notify`, `actions 0-7 notify, 8 refund`: by index and kind, as the API and `plangate watch` name them."""
    parts = []
    for (_, kind), run in groupby(
        enumerate(sorted(actions)), key=lambda found: (found[1][0] - found[0], found[1][1])
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
    def of(cls, top: Record, actions: Mapping[str, Sequence[Action]] | None = None) -> Tree:
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
        """Each record that is not a model call, depth first. A call of an agent and the agent's run are one line."""
        out: list[Line] = []
        stack = [(r, 0) for r in reversed(self.below(self.top))]
        while stack:
            record, depth = stack.pop()
            if record["kind"] == "model_call":
                continue
            runs = self.below(record, "agent") if record["kind"] == "tool_call" else []
            shown = runs[0] if runs else record
            out.append(self._line(shown, record, depth))
            below = [r for r in self.below(record) if r not in runs] if runs else []
            below += self.below(shown)
            stack += [(r, depth + 1) for r in reversed(below)]
        return out

    def _line(self, shown: Record, record: Record, depth: int) -> Line:
        what = str(shown["name"])
        if shown["kind"] == "agent":
            calls = len(self.below(shown, "model_call"))
            what = f"{what} ({plural(calls, 'model call')})" if calls else what
        elif shown["kind"] in ("plan_execution", "action", "predicate"):
            what = f"{ {'plan_execution': 'plan'}.get(shown['kind'], shown['kind']) } {what}"
        carried_out = tuple(self.actions.get(shown["id"], ()))
        status, ms = record["status"], record["durationMs"]
        return Line(depth, what, status, ms, record["rollup"], actions=carried_out)


def folded(lines: Sequence[Line], room: int) -> list[Line]:
    """The same in at most `room` lines: first, neighbours that say the same become one; then what is deepest goes, but
    for the first of it; then what is last. What was left out is counted."""
    if len(lines) <= room:
        return list(lines)
    short = list(_alike(lines))
    if len(short) <= room:
        return short
    room -= 1
    for depth in range(max(line.depth for line in short), -1, -1):
        short = list(_alike([line for line in short if line.depth <= depth]))
        free = room - sum(line.depth < depth for line in short)
        if free >= 0 or depth == 0:
            break
    kept: list[Line] = []
    for line in short:
        if line.depth < depth or free > 0:
            kept.append(line)
            free -= line.depth == depth
    left = len(lines) - sum(line.count for line in kept)
    return [*kept, Line(0, f"{left:,} more: --all shows them", "", None)] if left else kept


def _alike(lines: Sequence[Line]) -> Iterator[Line]:
    """Neighbours of one name that ended alike, with nothing below them, as one line."""
    held: Line | None = None
    for n, line in enumerate(lines):
        has_below = n + 1 < len(lines) and lines[n + 1].depth > line.depth
        same = held is not None and held.alike == line.alike
        if same and held is not None and not has_below:
            held = _together(held, line)
            continue
        if held is not None:
            yield held
        held = None if has_below else line
        if has_below:
            yield line
    if held is not None:
        yield held


def _together(one: Line, other: Line) -> Line:
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


def in_vain(tree: Tree) -> tuple[int, float | None]:
    """Tokens and dollars of what failed or was cancelled, each once: what is below it is its own."""
    used, cost = 0, None
    stack = [tree.top]
    while stack:
        record = stack.pop()
        if record["status"] in IN_VAIN:
            used += tokens(record["rollup"]["usage"])
            if record["rollup"]["costUsd"] is not None:
                cost = (cost or 0.0) + record["rollup"]["costUsd"]
        else:
            stack += tree.below(record)
    return used, cost


def screen(
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
    """All that `plangate work` prints. `artifacts`: superseded ones too, newest first. `height`: lines that there are,
    None where everything is wanted. `limit`: the one that the query stands at. `calls`: those for processes of users that
    it waits for. `actions`: by the work record that carries them out. `unknown`: those that somebody has to settle, by
    plan and dispatch."""
    tree = Tree.of(top, actions)
    head = _head(query, top, limit, width) + _callers(calls, width) + _unknown(unknown)
    tail = [*_produced(query, plans, artifacts, width), *_cost(tree, width)]
    lines = tree.lines()
    if height is not None:
        lines = folded(lines, max(height - len(head) - len(tail) - 1, FEWEST_LINES))
    done = table([line.cells() for line in lines], [max(width - 48, 30), 10, 12, 18, 10])
    return [*head, "", *done, *tail]


def _head(query: Record, top: Record, limit: str | None, width: int) -> list[str]:
    took = duration(top["durationMs"])
    state = safe(query["status"])
    if query["reason"] and query["reason"] != query["status"]:
        state += f" ({safe(query['reason'])}{f': {safe(limit)}' if limit else ''})"
    who = f", by {safe(query['agent'])}" if query["agent"] else ""
    lines = [f"{safe(query['id'])}  {state}{f' after {took}' if took else ''}{who}"]
    if query["prompt"]:
        lines.append(cut(f"asked: {query['prompt']}", width))
    if query.get("error"):
        error = f"{query['error'].get('code')}: {query['error'].get('message')}"
        first, *more = wrapped(error, width - len("error: "), ERROR_LINES)
        lines += [f"error: {first}", *(f"       {line}" for line in more)]
    lines += [f"waits: plangate approvals approve {safe(id)}" for id in query.get("openApprovals") or ()]
    if limit:
        lines.append(f"waits: {higher(query['id'], limit)}")
    return lines


def _callers(calls: Sequence[Record], width: int) -> list[str]:
    """Who is to do something, where a query waits for processes of users."""
    waits = Counter((call["status"], call["name"], call.get("claimedBy")) for call in calls)
    lines = []
    for (status, name, by), count in waits.items():
        if status == "open":
            told = f"waits: {plural(count, 'call')} of {name} open: start the program that serves {name}"
        elif status == "claimed":
            told = f"waits: {plural(count, 'call')} of {name} taken by {by}"
        else:
            continue
        lines.append(cut(told, width))
    return lines


def _unknown(dispatches: Sequence[tuple[str, Sequence[Action]]]) -> list[str]:
    """What is to be settled: the actions of one dispatch are, together."""
    shown = dispatches if len(dispatches) <= MOST_UNKNOWN else dispatches[:MOST_UNKNOWN]
    lines = [
        f"waits: {settled(plan, min(actions)[0])} at {cut(named(actions), NAMED_WIDTH)}"
        for plan, actions in shown
    ]
    more = len(dispatches) - len(shown)
    return [*lines, f"waits: {more:,} more like that: `plangate watch` names each"] if more else lines


def _produced(query: Record, plans: Sequence[Record], artifacts: Sequence[Record], width: int) -> list[str]:
    active = [a for a in artifacts if a.get("status") != "superseded"]
    each = max(RESULT_LINES // max(len(plans), 1), 1)
    lines = [f"  {line}" for plan in plans[:MOST_PLANS] for line in plan_lines(plan, width - 2, each)]
    lines += [f"  {artifact_line(a)}" for a in active[:MOST_PUBLISHED]]
    more = f"plangate artifacts --query {safe(query['id'])}"
    if len(active) > MOST_PUBLISHED:
        lines.append(f"  {plural(len(active) - MOST_PUBLISHED, 'more artifact')}: {more}")
    if len(active) < len(artifacts):
        lines.append(f"  {plural(len(artifacts) - len(active), 'artifact')} superseded: {more} --superseded")
    answer = [line for line in output_lines(query.get("output")) if line.strip()]
    lines += [f"  {cut(line, width - 2)}" for line in answer[:OUTPUT_LINES]]
    if len(answer) > OUTPUT_LINES:
        lines.append(f"  {plural(len(answer) - OUTPUT_LINES, 'more line')} of the answer: --json has it")
    return ["", "produced:", *(lines or ["  nothing"])]


def plan_lines(plan: Record, width: int, most: int) -> list[str]:
    """What became of a plan, and what its execution said or a person who did not approve it: behind it where there is
    room, else below in at most so many lines."""
    result = plan.get("result")
    said = result.get("summary") if isinstance(result, dict) else None
    told = safe(said or plan.get("feedback") or "")
    line = f"plan {safe(plan['specName'])} ({safe(plan['id'])}): {safe(plan['status'])}"
    whole = f"{line}: {told}" if told else line
    if len(whole) <= width:
        return [whole]
    return [cut(line, width), *(f"  {line}" for line in wrapped(told, width - 2, most))]


def artifact_line(artifact: Record) -> str:
    """One line of an artifact: never what is in it."""
    agent = (artifact.get("producer") or {}).get("agent")
    told = ", ".join(safe(part) for part in (artifact["channel"], agent, artifact["id"]) if part)
    title = f": {cut(artifact['title'], 60)}" if artifact.get("title") else ""
    return f"{cut(artifact['path'], 80)} ({told}){title}"


def _cost(tree: Tree, width: int) -> list[str]:
    spent = tree.top["rollup"]
    usage, calls = spent["usage"], spent["modelCalls"]
    cached = usage["cacheReadTokens"] + usage["cacheWriteTokens"]
    read = f"{usage['inputTokens'] + cached:,} tokens in"
    read += f" ({usage['cacheReadTokens']:,} of them cached)" if usage["cacheReadTokens"] else ""
    cost = money(spent["costUsd"]) or ("no price is known" if spent["unpricedCalls"] else "$0.00")
    if spent["costUsd"] is not None and spent["unpricedCalls"]:
        cost += f" and {plural(spent['unpricedCalls'], 'call')} without a known price"
    lines = [f"{cost}; {plural(calls, 'model call')}, {read}, {usage['outputTokens']:,} out"]
    used, lost = in_vain(tree)
    if used:
        lines.append(f"in vain: {plural(used, 'token')}{f', {money(lost)}' if lost is not None else ''}")
    kept = spent["references"]["keptOutBytes"]
    if kept:
        lines.append(f"kept out of prompts: {size(kept)}")
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
    return ["cost:", *(f"  {cut(line, width - 2)}" for line in lines)]
