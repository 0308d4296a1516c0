"""Foundations of every package: ids, clock, errors, database, blobs, JSON checks."""
