"""Data sources and catalog entries that a program declares when it opens a runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from plangate.client import ServiceClient, path
from plangate.spec.base import did_you_mean

KEYS: Final = ("sources", "entries")
ENTRIES_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class DataEnvironment:
    """The declarations of `create_runtime(data_environment=...)`, made when the runtime is opened."""

    sources: Mapping[str, Mapping[str, Any]]
    entries: Sequence[Mapping[str, Any]]

    async def declare(self, client: ServiceClient) -> None:
        """Make the requests that declare the sources and write the entries. The service checks the bodies."""
        for name, source in self.sources.items():
            await client.request("PUT", path("sources", name), dict(source))
        for at in range(0, len(self.entries), ENTRIES_AT_ONCE):
            part = [dict(entry) for entry in self.entries[at : at + ENTRIES_AT_ONCE]]
            await client.request("POST", "/catalog/entries", {"entries": part})


def parse_data_environment(value: Any) -> DataEnvironment | None:
    """Return what is declared. The service checks the bodies.

    Raises:
        TypeError: for what is no mapping, or has sources or entries of another form.
        ValueError: for an unknown key.
    """
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise TypeError('data_environment is {"sources": {name: {...}}, "entries": [...]}')
    for key in value:
        if key not in KEYS:
            raise ValueError(f"data_environment: unknown key {key!r}{did_you_mean(str(key), KEYS)}")
    sources, entries = value.get("sources", {}), value.get("entries", [])
    if not isinstance(sources, Mapping) or not all(
        isinstance(source, Mapping) for source in sources.values()
    ):
        raise TypeError("data_environment: sources is a mapping of names to what PUT /sources/{name} takes")
    if isinstance(entries, str) or not isinstance(entries, Sequence):
        raise TypeError("data_environment: entries is a list of what POST /catalog/entries takes")
    if not all(isinstance(entry, Mapping) for entry in entries):
        raise TypeError("data_environment: every entry is a mapping, with `id` and `kind`")
    return DataEnvironment(dict(sources), list(entries))
