"""Queries and threads: submit, list, cancel, resume, limits, deletion."""
