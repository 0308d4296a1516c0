"""The check of a table of rates: what `check_table` finds, whoever wrote the table."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

Kilograms = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Band(BaseModel):
    """Parcels with `from_kg` <= weight < `below_kg`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    from_kg: Kilograms
    below_kg: Kilograms
    price_cents: Annotated[int, Field(gt=0)]


class Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    band: Annotated[list[Band], Field(min_length=1)]


def read(text: str) -> Table:
    """Parse a table. Raise ValueError if the text is not a table."""
    return Table.model_validate(tomllib.loads(text))


def find_faults(text: str) -> list[str]:
    """Return what is wrong with a table, each in a sentence; none if every parcel has exactly one price."""
    try:
        table = read(text)
    except ValidationError as error:
        return [f"{'.'.join(map(str, e['loc']))}: {e['msg']}." for e in error.errors()]
    except ValueError as error:
        return [f"This is not TOML: {error}."]
    return list(_find_faults(table.band))


def _find_faults(bands: list[Band]) -> Iterator[str]:
    if bands[0].from_kg:
        yield f"Nothing has a price below {bands[0].from_kg} kg."
    for band in bands:
        if band.below_kg <= band.from_kg:
            yield f"The band from {band.from_kg} kg ends at {band.below_kg} kg: there is nothing in it."
    for band, then in pairwise(bands):
        if then.from_kg > band.below_kg:
            yield (
                f"From {band.below_kg} to {then.from_kg} kg there is no price. "
                f"Change `below_kg = {band.below_kg}` to `below_kg = {then.from_kg}`."
            )
        elif then.from_kg < band.below_kg:
            yield (
                f"From {then.from_kg} to {band.below_kg} kg there are two prices. "
                f"Change `from_kg = {then.from_kg}` to `from_kg = {band.below_kg}`."
            )
        if then.price_cents < band.price_cents:
            yield f"The band from {then.from_kg} kg is cheaper than the one before it."
