"""Describe systems of agents as data, run them on a Plangate service, decide their approvals."""
