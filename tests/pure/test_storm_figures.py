"""The table of `make storm` marks figures that do not hold."""

from __future__ import annotations

from tests.storm.figures import Figures, failures, table


def test_a_figure_beyond_its_bound_or_not_measured_fails() -> None:
    figures = Figures("kills")
    figures.at_most("good", 2.0, 15, "s")
    figures.at_most("late", 15.5, 15, "s")
    figures.at_most("lost", None, 15, "s")
    figures.exactly("set aside", 1, 0)
    figures.publish("of 64", 40.0, "s")
    assert [row.name for row in failures(figures.rows)] == ["late", "lost", "set aside"]
    lines = table(figures.rows).splitlines()
    assert lines[3] == "| kills | late | at most 15 s | 15.5 s | FAIL |"
    assert lines[4] == "| kills | lost | at most 15 s | not measured | FAIL |"
    assert lines[6] == "| kills | of 64 |  | 40 s | published |"
