"""docs/telemetry.md names every metric and attribute of the code."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client.core import Metric

from app.api.metrics import COUNTED, DATABASE_UP, DATABASE_WRITABLE, OWN
from app.base.metrics import NAMESPACE, Metrics
from app.telemetry import names

PAGE = (Path(__file__).parents[3] / "docs" / "telemetry.md").read_text("utf-8")


def rows(heading: str) -> dict[str, tuple[str, str]]:
    """Of the table with this heading: the series, its labels, what it means."""
    table = PAGE.partition(f"{heading}\n| --- | --- | --- |\n")[2].partition("\n\n")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return {name.strip("`"): (labels, text) for name, labels, text in cells}


def shown(metric: Metric) -> str:
    return f"{metric.name}_total" if metric.type == "counter" else metric.name


def test_the_installation_metrics_match_the_code() -> None:
    assert rows("| series | label | means |") == {
        f"{NAMESPACE}_{name}": (f"`{label}`" if label else "", text)
        for name, (text, label) in COUNTED.items()
    }


def test_the_process_metrics_match_the_code() -> None:
    metrics = Metrics()
    labels = {
        collector._name: ", ".join(f"`{label}`" for label in collector._labelnames)
        for collector in vars(metrics).values()
        if hasattr(collector, "_labelnames")
    }
    expected = {
        shown(metric): (labels[metric.name], metric.documentation) for metric in metrics.registry.collect()
    }
    expected |= {f"{NAMESPACE}_{name}": ("", text) for name, (text, _) in OWN.items()}
    expected[f"{NAMESPACE}_database_up"] = ("", DATABASE_UP)
    expected[f"{NAMESPACE}_database_writable"] = ("", DATABASE_WRITABLE)
    assert rows("| series | labels | means |") == expected


def test_span_attributes_match_the_code() -> None:
    known = {
        value
        for value in vars(names).values()
        if isinstance(value, str) and re.match(r"(gen_ai|plangate|error)\.", value)
    }
    named = set(re.findall(r"`((?:gen_ai|plangate|error)\.[\w.]+)`", PAGE))
    assert known - {names.TOKEN_TYPE} == named


def test_alert_rules_use_existing_series() -> None:
    known = {*rows("| series | label | means |"), *rows("| series | labels | means |")}
    named = set(re.findall(r"plangate_[a-z_]+", PAGE))
    assert {name.removesuffix("_bucket") for name in named} <= known
