"""Traces and metrics for who operates the service: spans made from work records that are over."""
