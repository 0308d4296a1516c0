"""The scenarios of `make storm`, small. Suspects, killer queries, stalled readers and half-open sockets have files of their
own: test_suspects.py, test_stalled_readers.py and test_half_open_sockets.py."""

from __future__ import annotations

import pytest

from tests.storm.figures import Figures, failures, table
from tests.storm.scenarios import BY_NAME

SMALL = ("stalled-database", "rapid-kills", "stranded-plan", "one-request")


@pytest.mark.parametrize("name", SMALL)
def test_every_figure_of_the_scenario_holds(name: str) -> None:
    figures = Figures(name)
    BY_NAME[name].small(figures)
    assert figures.rows
    assert not failures(figures.rows), table(figures.rows)
