"""The order in which test files are handed to the processes that run them.

Files that start programs come first and pure ones last, so that no process is still busy with a slow file when the
others have nothing left.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SLOWEST_FIRST = ("processes", "postgres", "pure")


def order_tests(items: list[pytest.Item], seed: str | None) -> None:
    """Sort tests by the folder of their file, files with many tests first; with a seed, shuffle them instead.

    The tests of a file stay together, because they share fixtures.
    """
    if seed is not None:
        shuffle = random.Random(seed)
        shuffle.shuffle(items)
        places = {path: shuffle.random() for path in sorted({item.path for item in items})}
        items.sort(key=lambda item: places[item.path])
        return
    sizes = Counter(item.path for item in items)
    items.sort(key=lambda item: (_folder_rank(item.path), -sizes[item.path], str(item.path)))


def _folder_rank(path: Path) -> int:
    folder = path.relative_to(TESTS).parts[0] if path.is_relative_to(TESTS) else ""
    return SLOWEST_FIRST.index(folder) if folder in SLOWEST_FIRST else len(SLOWEST_FIRST)
