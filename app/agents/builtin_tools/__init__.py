"""The built-in tools of agents."""
