"""Traces and metrics for operators: spans of work records that have ended."""
