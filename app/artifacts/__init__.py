"""Published results of work."""
