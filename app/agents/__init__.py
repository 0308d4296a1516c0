"""The life of a query: the pure loop, the runner, tool dispatch, sub-agents."""
