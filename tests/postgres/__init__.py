"""Tests that need a real Postgres and no other process."""
