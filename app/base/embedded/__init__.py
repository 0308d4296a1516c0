"""The parts of the embedded Postgres: programs, account, places, locks, socket, cluster and server."""
