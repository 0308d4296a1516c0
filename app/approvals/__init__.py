"""Approvals: subjects, decisions, deadlines."""
