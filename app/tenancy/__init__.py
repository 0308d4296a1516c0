"""Tenants, keys, principals, scopes, secrets."""
