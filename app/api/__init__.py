"""The HTTP application and the processes that serve it."""
