"""Strict JSON, large JSON in separate processes, and cooperative parsing."""
