"""Draw a plan for people: its actions, what each reads and writes, and its dependencies. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args

from plangate.spec.variables import VariablePath
from plangate.statuses import ActionStatus

from app.base.json.offload import loads
from app.base.responses import to_wire
from app.documents.glimpses import truncate_text
from app.plans.body import parse_actions
from app.plans.graph import PlanGraph
from app.plans.models import ActionState, Plan
from app.plans.views import EdgeView, GraphView

MAX_EDGES: Final = 10_000
"""Half a million are possible: a thousand actions, each of which reads what all before it write."""

KIND_CHARS: Final = 60
PATH_CHARS: Final = 80
MAX_PATHS_PER_ARROW: Final = 3

STYLES: Final = {
    "pending": "fill:#f4f4f4,stroke:#767676,color:#1a1a1a",
    "dispatched": "fill:#dbeafe,stroke:#1d4ed8,color:#1a1a1a",
    "succeeded": "fill:#dcfce7,stroke:#15803d,color:#1a1a1a",
    "failed": "fill:#fee2e2,stroke:#b91c1c,color:#1a1a1a",
    "skipped": "fill:#ffffff,stroke:#767676,color:#555555,stroke-dasharray:4",
    "unknown": "fill:#fef3c7,stroke:#b45309,color:#1a1a1a",
}

MARK: Final = "\ufb02"  # Mermaid marks character codes with this ligature
_UNSAFE: Final = re.compile(r"[^\w .†-]|(?<![^\W_])_|_(?![^\W_])")


@dataclass(frozen=True, slots=True)
class PlanNode:
    """An action. It has no status before its plan is approved, and was sent `attempts` times."""

    index: int
    kind: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    status: ActionStatus | None
    attempts: int


@dataclass(frozen=True, slots=True)
class PlanEdge:
    """An action reads a path that another one writes, or a part of it, or more than it."""

    writer: int
    reader: int
    path: str


@dataclass(frozen=True, slots=True)
class PlanDrawing:
    plan: Plan
    nodes: tuple[PlanNode, ...]
    edges: tuple[PlanEdge, ...]
    edges_left_out: int

    def wire(self) -> dict[str, Any]:
        edges = [to_wire(EdgeView, edge, from_=edge.writer, to=edge.reader) for edge in self.edges]
        of = {"plan_id": self.plan.id, "revision": self.plan.revision, "status": self.plan.status}
        return to_wire(GraphView, self, **of, edges=edges)

    def mermaid(self) -> str:
        """Return the drawing as a Mermaid flowchart from top to bottom: an arrow leads from an action to
        each action that reads what it writes, and each status is a word and a class."""
        return "\n".join(["flowchart TD", *(f"    {line}" for line in self._lines()), ""])

    def _lines(self) -> Iterator[str]:
        for node in self.nodes:
            tried = f"{node.attempts} attempts" if node.attempts > 1 else None
            parts = (str(node.index), label(node.kind, KIND_CHARS), node.status, tried)
            status = f":::{node.status}" if node.status else ""
            yield f'n{node.index}["{" · ".join(part for part in parts if part)}"]{status}'
        between: dict[tuple[int, int], list[str]] = {}
        for edge in self.edges:
            between.setdefault((edge.writer, edge.reader), []).append(edge.path)
        for (writer, reader), paths in between.items():
            labels = [label(path, PATH_CHARS) for path in paths[:MAX_PATHS_PER_ARROW]]
            more = [f"{len(paths) - MAX_PATHS_PER_ARROW} more"] if len(paths) > MAX_PATHS_PER_ARROW else []
            yield f'n{writer} -->|"{", ".join([*labels, *more])}"| n{reader}'
        if self.edges_left_out:
            yield f'more["{self.edges_left_out} more are not drawn"]'
        for status in get_args(ActionStatus):
            if any(node.status == status for node in self.nodes):
                yield f"classDef {status} {STYLES[status]}"


def draw_plan(plan: Plan, states: Sequence[ActionState]) -> PlanDrawing:
    """Draw a plan. `states` are those of its actions, once it was approved. Without variables it has no edges."""
    actions = parse_actions(loads(plan.body))
    graph = PlanGraph.of(actions) if plan.variables else None
    steps = graph.steps if graph else ()
    reads = [_texts(step.paths()) for step in steps] or [()] * len(actions)
    writes = [_texts(step.writes()) for step in steps] or [()] * len(actions)
    by_index = {state.index: state for state in states}
    nodes = []
    for n, action in enumerate(actions):
        state = by_index.get(n)
        status, attempts = (state.status, state.attempts) if state else (None, 0)
        nodes.append(PlanNode(n, action.kind, reads[n], writes[n], status, attempts))
    edges, left_out = _edges(graph) if graph else ((), 0)
    return PlanDrawing(plan, tuple(nodes), edges, left_out)


def _edges(graph: PlanGraph) -> tuple[tuple[PlanEdge, ...], int]:
    edges, left_out = list[PlanEdge](), 0
    for step in graph.steps:
        for read in dict.fromkeys(step.reads()):
            room, path = MAX_EDGES - len(edges), str(read)
            writers = graph.producers(read)[:room] if room else []
            edges += [PlanEdge(writer, step.index, path) for writer in writers]
            left_out += graph.writers(read).bit_count() - len(writers)
    return tuple(edges), left_out


def _texts(references: Iterator[VariablePath]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(str, references)))


def label(text: str, chars: int) -> str:
    """Return a text as a quoted Mermaid label. Mermaid interprets quotes, directives, comments, Markdown,
    HTML, icons and formulas, partly with regular expressions over whole lines, so everything but
    letters, digits and a few signs is written as character codes. Invisible and bidirectional control
    characters are replaced."""
    visible = "".join(char if char.isprintable() else "\ufffd" for char in truncate_text(text, chars))
    return _UNSAFE.sub(lambda match: f"#{ord(match[0])};", visible.replace(MARK, "fl"))
