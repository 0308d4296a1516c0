"""Tenants, API keys, principals, scopes and secrets."""
