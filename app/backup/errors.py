"""The error of backups and restores. This module imports nothing, so that the command line can import it quickly."""

from __future__ import annotations


class BackupError(Exception):
    """A backup or a restore cannot be made. The message says what is wrong and what to do."""
