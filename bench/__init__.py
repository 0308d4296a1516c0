"""Measure what a run costs: the service against a minimal program that does the same, on this machine."""
