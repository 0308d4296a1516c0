"""Answers of the routes of artifacts. The record is that of the events."""

from __future__ import annotations

from typing import Literal

from app.base.responses import CursorPage, View
from app.events.carried import ArtifactInfo


class ArtifactPage(CursorPage):
    """A page of artifacts. It may have fewer than `limit`, or none, although there are more: `nextCursor` tells."""

    items: list[ArtifactInfo]


class LineageEdge(View):
    """An edge to a step: `via` is the artifact one step nearer. The kind says in which field the newer of the two
    names the older one: `parent` is `parentArtifactIds`, `replaces` is `replaces`."""

    kind: Literal["parent", "replaces"]
    """How the two are related."""
    via: str
    """What relates them."""


class LineageStep(View):
    """An artifact, its distance in steps, and at most ten edges that lead to it."""

    depth: int
    """How many steps away it is."""
    edges: list[LineageEdge]
    """How it is related to the step before."""
    artifact: ArtifactInfo
    """The record."""


class LineageView(View):
    """The ancestors and descendants of an artifact, along `parentArtifactIds` and `replaces`, nearest first."""

    artifact: ArtifactInfo
    """The record."""
    ancestors: list[LineageStep]
    """What it came from, the nearest first."""
    descendants: list[LineageStep]
    """What came from it, the nearest first."""
