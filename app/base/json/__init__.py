"""Strict JSON, large JSON in processes of its own, and cooperative parsing."""
