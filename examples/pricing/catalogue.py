"""The goods of a shop that does not exist: the same 480 products on every machine."""

from __future__ import annotations

from itertools import product as every
from typing import Literal, get_args

from pydantic import BaseModel

Season = Literal["winter", "spring"]

GOODS: dict[Season, dict[str, int]] = {  # what it is, and about what it costs, in cents
    "winter": {"Coat": 19_900, "Parka": 24_900, "Boots": 14_900, "Scarf": 3_900},
    "spring": {"Shirt": 5_900, "Dress": 8_900, "Sneakers": 9_900, "Cap": 2_900},
}
MAKERS = ("Alder", "Birch", "Cedar", "Hazel", "Rowan", "Willow")
COLOURS = ("black", "white", "sand", "olive", "navy", "rust", "plum", "teal", "grey", "amber")


class Product(BaseModel):
    """`list_cents` is the price that never changes: whatever is planned is planned from it."""

    sku: str
    name: str
    season: Season
    list_cents: int
    stock: int


def catalogue() -> list[Product]:
    """All products, in the order of their SKUs."""
    goods = [(season, *good) for season in get_args(Season) for good in GOODS[season].items()]
    return [
        Product(
            sku=f"SKU-{n:04}",
            name=f"{maker} {what}, {colour}",
            season=season,
            list_cents=about + n * 37 % 50 * 100,
            stock=n * 53 % 97,
        )
        for n, ((season, what, about), maker, colour) in enumerate(every(goods, MAKERS, COLOURS), 1)
    ]
