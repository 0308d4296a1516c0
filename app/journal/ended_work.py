"""Work records that ended: counted and reported once they are durable."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from app.base.ids import time_ms
from app.base.metrics import Metrics, ModelCallUsage
from app.journal.models import Work


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


def ended_work(work: Work) -> EndedWork:
    return EndedWork(
        work.id, work.kind, work.status, _model_usage(work) if work.kind == "model_call" else None
    )


def _model_usage(work: Work) -> ModelCallUsage:
    """Return the usage of a model call; it started when the id of its record was created."""
    tokens = {
        "input": work.input_tokens,
        "output": work.output_tokens,
        "cache_read": work.cache_read_tokens,
        "cache_write": work.cache_write_tokens,
    }
    seconds = max(0.0, time.time() - time_ms(work.id) / 1000)
    return ModelCallUsage(work.provider or "none", work.status, seconds, work.attempts, tokens, work.cost_usd)
