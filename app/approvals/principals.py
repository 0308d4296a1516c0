"""Principals as people: names that differ only in case, width or blanks are one person's. Pure."""

from __future__ import annotations

import unicodedata


def canonical_principal(principal: str) -> str:
    """Return what all spellings of a principal's name have in common: `AP1`, `ap1` and ` ap1` are one person."""
    folded = unicodedata.normalize("NFKC", principal).casefold()
    return " ".join(unicodedata.normalize("NFKC", folded).split())


def is_same_person(one: str, other: str) -> bool:
    return canonical_principal(one) == canonical_principal(other)
