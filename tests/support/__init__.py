"""Support for tests: the embedded Postgres, services with separate databases, clients, specs."""
