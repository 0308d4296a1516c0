"""Whether this process can work: what `/readyz` answers and `/metrics` counts."""

from __future__ import annotations


class Health:
    """The state of a process. `draining` is set when it was told to stop: it still serves, and should get no more."""

    def __init__(self) -> None:
        self.draining = False
