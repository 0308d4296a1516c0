"""Answers of the routes of artifacts. The record is that of the events."""

from __future__ import annotations

from typing import Literal

from plangate.events.carried import ArtifactInfo

from app.base.responses import CursorPage, View


class ArtifactPage(CursorPage):
    """A page of artifacts. It may have fewer than `limit`, or none, although there are more: `nextCursor` tells."""

    items: list[ArtifactInfo]


class LineageEdge(View):
    """How a step was reached: `via` is the artifact one step nearer. `parent`: the newer of the two names the older one
    in `parentArtifactIds`; `replaces`: in `replaces`."""

    kind: Literal["parent", "replaces"]
    """How the two are related."""
    via: str
    """What relates them."""


class LineageStep(View):
    """An artifact, how many steps away it is, and the edges by which it was reached, at most ten."""

    depth: int
    """How many steps away it is."""
    edges: list[LineageEdge]
    """How it is related to the step before."""
    artifact: ArtifactInfo
    """The record."""


class LineageView(View):
    """What an artifact came from and what came from it, along `parentArtifactIds` and `replaces`; the nearest first."""

    artifact: ArtifactInfo
    """The record."""
    ancestors: list[LineageStep]
    """What it came from, the nearest first."""
    descendants: list[LineageStep]
    """What came from it, the nearest first."""
