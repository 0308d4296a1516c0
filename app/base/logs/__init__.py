"""Structured logs that hold no payloads and no secrets."""
