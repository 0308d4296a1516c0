"""The HTTP API as Python: `calls` and `models` are generated from openapi/openapi.json, `make openapi` writes them."""
