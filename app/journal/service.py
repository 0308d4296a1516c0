"""The journal's functions for other features. They join the caller's transaction."""

from app.journal.store import append_events, load_heads, load_scope

__all__ = ["append_events", "load_heads", "load_scope"]
