"""Pages of lists that are bounded in what they read: candidates, rows and bytes.

A page of a list with filters examines a bounded number of candidates (docs/decisions/0018). A page also ends before the
row with which its rows would have more than MAX_PAGE_BYTES, but has at least one. Its cursor names the last row that was
examined or shown, so nothing is skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.base.postgres.database import Tx

MAX_PAGE_BYTES: Final = 4 * 1024 * 1024


def cut_at_bytes(statement: str, *, size: str, order: str) -> str:
    """Return a statement whose rows have at most MAX_PAGE_BYTES together, or one row. `size` is the SQL for the bytes of a
    row, `order` the order of the rows. `split_rows` reads the result. Bodies of rows that are cut off are not read."""
    return f"""
SELECT * FROM (
    SELECT page.*, count(*) OVER () AS page_rows, row_number() OVER page_order AS page_row,
           sum({size}) OVER page_order AS page_bytes
      FROM ({statement}) AS page WINDOW page_order AS (ORDER BY {order} ROWS UNBOUNDED PRECEDING)) AS pages
 WHERE page_row = 1 OR page_bytes <= {MAX_PAGE_BYTES} ORDER BY {order}
"""


def split_rows(rows: Sequence[Any], limit: int) -> tuple[list[dict[str, Any]], bool]:
    """Return up to `limit` rows of a statement of `cut_at_bytes`, and whether the statement had more."""
    shown = [
        {name: value for name, value in row.items() if not name.startswith("page_")} for row in rows[:limit]
    ]
    return shown, bool(rows) and rows[0]["page_rows"] > len(shown)


@dataclass(frozen=True, slots=True)
class PageStatements:
    """The statements of a list whose pages examine a bounded number of candidates, for `fetch_page`.

    Attributes:
        page: selects the rows. Its parameters are the tenant, those of the candidates, the limit, and the filters.
        last: selects the key of the last candidate if there may be more of them.
        key: the column that orders the rows, the greatest first.
    """

    page: str
    last: str
    key: str

    @classmethod
    def from_candidates(
        cls, filtered: str, candidates: str, *, size: str, examined: str, key: str = "id"
    ) -> PageStatements:
        """Return the statements of a list. `filtered` has `{candidates}` where the candidates go; `examined` is the
        parameter that is their limit, and `size` the SQL for the bytes of a row."""
        return cls(
            page=cut_at_bytes(filtered.format(candidates=candidates), size=size, order=f"{key} DESC"),
            last=f"SELECT CASE WHEN count(*) = {examined} THEN min({key}) END FROM ({candidates}) AS candidates",
            key=key,
        )


async def fetch_page(
    tx: Tx,
    statements: PageStatements,
    *,
    candidates: Sequence[Any],
    limit: int,
    filters: Sequence[Any] = (),
) -> tuple[list[dict[str, Any]], str | None]:
    """Return up to `limit` rows, and the key after which the next page begins, or None on the last page. Call it first in a
    read-only transaction: both statements see the same rows, or a deletion between them would hide some."""
    await tx.set_repeatable_read()
    rows, has_more = split_rows(
        await tx.fetch(statements.page, tx.tenant, *candidates, limit + 1, *filters), limit
    )
    if has_more:
        return rows, rows[-1][statements.key]
    last: str | None = await tx.value(statements.last, tx.tenant, *candidates)
    return rows, last
