"""Registered specs and their versions."""
