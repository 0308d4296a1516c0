"""What stops a backup or a restore. Imports nothing, so that the command line can name it at no cost."""

from __future__ import annotations


class BackupError(Exception):
    """A backup or a restore cannot be made. The message says what is wrong and what to do."""
