"""Immutable file contents, stored by tenant and digest."""
