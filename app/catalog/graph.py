"""Relations between tables and other entries, and joins. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.catalog.entries import CatalogEntry

MAX_PATHS: Final = 5
MAX_EXPLORED: Final = 20_000


@dataclass(frozen=True, slots=True)
class Edge:
    """A relation between two entries. `columns` are pairs of columns that join two tables."""

    origin: str
    target: str
    kind: str
    via: str | None = None
    columns: tuple[tuple[str, str], ...] = ()

    def reverse(self) -> Edge:
        flipped = tuple((right, left) for left, right in self.columns)
        return Edge(self.target, self.origin, self.kind, self.via, flipped)


def edges(entries: Iterable[CatalogEntry]) -> list[Edge]:
    """Return the relations that entries say: relationships between tables, and `related`."""
    relations = []
    for entry in entries:
        if entry.kind == "relationship":
            content = entry.content
            left, right = content.get("from"), content.get("to")
            pairs = tuple(
                zip(_names(content.get("fromColumns")), _names(content.get("toColumns")), strict=False)
            )
            if isinstance(left, str) and isinstance(right, str):
                kind = "foreign_key" if content.get("kind") == "foreign_key" else "declared"
                relations.append(Edge(left, right, kind, entry.id, pairs))
            continue
        relations += [Edge(entry.id, other, "related") for other in entry.related]
    return relations


def _names(value: Any) -> list[str]:
    return [str(name) for name in value] if isinstance(value, list) else []


def neighbors(ids: Sequence[str], known: Iterable[Edge], kinds: Sequence[str] | None) -> list[Edge]:
    """Return the relations that leave one of the ids, in either direction."""
    origins = set(ids)
    return [
        edge
        for relation in known
        for edge in (relation, relation.reverse())
        if edge.origin in origins and (not kinds or edge.kind in kinds)
    ]


def join_paths(origin: str, target: str, known: Iterable[Edge], max_hops: int) -> list[list[Edge]]:
    """Return the shortest ways to join two tables, at most MAX_PATHS, without visiting a table twice."""
    following: dict[str, list[Edge]] = {}
    for relation in known:
        if relation.columns:
            for edge in (relation, relation.reverse()):
                following.setdefault(edge.origin, []).append(edge)
    paths: list[list[Edge]] = []
    waiting: deque[list[Edge]] = deque([[edge] for edge in following.get(origin, ())])
    explored = 0
    while waiting and len(paths) < MAX_PATHS and explored < MAX_EXPLORED:
        explored += 1
        path = waiting.popleft()
        last = path[-1].target
        if last == target:
            paths.append(path)
            continue
        if len(path) < max_hops:
            visited = {origin, *(edge.target for edge in path)}
            waiting += [[*path, edge] for edge in following.get(last, ()) if edge.target not in visited]
    return paths


def describe_path(path: Sequence[Edge], tables: Mapping[str, str]) -> dict[str, Any]:
    """Return a path as its joins, in words and in SQL. `tables` are the names for SQL by the id of a table."""
    joins = []
    first = tables.get(path[0].origin, path[0].origin)
    statement = f"FROM {first}"
    for edge in path:
        left, right = tables.get(edge.origin, edge.origin), tables.get(edge.target, edge.target)
        condition = " AND ".join(f"{left}.{a} = {right}.{b}" for a, b in edge.columns)
        pairs = " and ".join(f"{left}.{a} is {right}.{b}" for a, b in edge.columns)
        join = f"JOIN {right} ON {condition}"
        joins.append({"words": f"Each row of {left} joins the rows of {right} where {pairs}.", "sql": join})
        statement = f"{statement} {join}"
    return {"hops": len(path), "joins": joins, "sql": statement}
