"""Names that people or models would take for each other."""

from __future__ import annotations

import unicodedata
from typing import Final

# Letters of other scripts, and digits, that look like a Latin letter in common fonts.
_CONFUSABLES: Final = str.maketrans(
    {
        "0": "o", "1": "l", "|": "l",
        "а": "a", "в": "b", "е": "e", "к": "k", "м": "m", "н": "h", "о": "o", "р": "p", "с": "c", "т": "t",
        "у": "y", "х": "x", "ѕ": "s", "і": "i", "ј": "j", "ԁ": "d", "һ": "h", "ӏ": "l", "ԛ": "q", "ԝ": "w",
        "α": "a", "β": "b", "ε": "e", "η": "n", "ι": "i", "κ": "k", "ν": "v", "ο": "o", "ρ": "p", "τ": "t",
        "υ": "u", "χ": "x", "γ": "y", "ω": "w", "ı": "i", "ɑ": "a", "ɡ": "g", "ɩ": "i", "‐": "-", "‑": "-",
        "–": "-", "—": "-", "−": "-",
    }
)  # fmt: skip


def skeletons(name: str) -> frozenset[str]:
    """Return the skeletons of a name. Names that share one differ only by case or by lookalike characters."""
    folded = unicodedata.normalize("NFKC", name).casefold().translate(_CONFUSABLES)
    capital_i = unicodedata.normalize("NFKC", name).replace("I", "l").casefold().translate(_CONFUSABLES)
    return frozenset({folded, capital_i})
