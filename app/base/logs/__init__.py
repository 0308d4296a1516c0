"""Structured logs without payloads and secrets."""
