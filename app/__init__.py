"""The Plangate service."""
