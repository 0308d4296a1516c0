"""Answers of the routes of artifacts. The record is that of the events."""

from __future__ import annotations

from plangate.events.carried import ArtifactInfo

from app.base.responses import CursorPage, View


class ArtifactPage(CursorPage):
    """A page of artifacts. It may have fewer than `limit`, or none, although there are more: `nextCursor` tells."""

    items: list[ArtifactInfo]


class LineageStep(View):
    """An artifact, and how many steps away it is."""

    depth: int
    artifact: ArtifactInfo


class LineageView(View):
    """What an artifact came from and what came from it, along `parentArtifactIds`; the nearest first."""

    artifact: ArtifactInfo
    ancestors: list[LineageStep]
    descendants: list[LineageStep]
