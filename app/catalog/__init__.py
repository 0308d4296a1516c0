"""Data sources of a tenant, and the catalog that describes them."""
