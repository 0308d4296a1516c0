"""Small versions of scenarios of `make storm`. Kills are in test_storm.py, suspects and killer queries in
test_suspects.py, and test_stalled_readers.py and test_half_open_sockets.py have their own files."""

from __future__ import annotations

import pytest

from tests.storm.figures import Figures, failures, table
from tests.storm.scenarios import BY_NAME

pytestmark = pytest.mark.long

SMALL = ("stalled-database", "stranded-plan", "one-request")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", SMALL)
def test_every_figure_of_the_scenario_holds(name: str) -> None:
    figures = Figures(name)
    BY_NAME[name].small(figures)
    assert figures.rows
    assert not failures(figures.rows), table(figures.rows)
