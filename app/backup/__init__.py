"""Backups: the database and the local bodies saved to a directory, and restored from it into an empty database."""
