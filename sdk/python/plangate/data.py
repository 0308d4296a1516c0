"""Methods for the data sources of a tenant."""

from __future__ import annotations

from plangate.api.models import SourceView
from plangate.memory import MemoryMethods


class DataMethods(MemoryMethods):
    """The verbs of data sources, but for `profile_source`, which starts a query."""

    async def get_source(self, name: str) -> SourceView:
        """Return a source of the tenant, with the state of its profile.

        Args:
            name: The name of the source.

        Raises:
            NotFound: if there is no such source; the message has the nearest names.
            ServiceUnavailable: if the service does not answer.

        Example:
            >>> async def tables(runtime):
            ...     return (await runtime.get_source("shop"))["profile"]["found"]["tables"]
        """
        return await self.api.read_source(name)
