"""Commands that use only the public API of a service."""
