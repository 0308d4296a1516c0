"""Neutral messages, the provider protocol, one file a vendor."""
