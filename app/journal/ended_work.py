"""Work records that ended: counted and reported once they are durable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from app.base.metrics import Metrics, ModelCallUsage


class EndedWork(NamedTuple):
    """A work record that has ended. `use` is the usage of a model call."""

    id: str
    kind: str
    status: str
    use: ModelCallUsage | None = None


EndedWorkListener = Callable[[str, Sequence[EndedWork]], None]


def work_counter(metrics: Metrics) -> EndedWorkListener:
    """Return the listener that counts ended work records and their usage."""

    def count(_tenant: str, work: Sequence[EndedWork]) -> None:
        for one in work:
            metrics.count_work_record(one.kind, one.status)
            if one.use is not None:
                metrics.count_model_call(one.use)

    return count
