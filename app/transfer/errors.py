"""The error of exports and imports. This module imports nothing, so that the command line can import it quickly."""

from __future__ import annotations


class TransferError(Exception):
    """A tenant cannot be exported or imported. The message says what is wrong and what to do."""
