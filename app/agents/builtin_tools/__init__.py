"""The builtin tools of agents."""
