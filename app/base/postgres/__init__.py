"""The connection pool, transactions, NOTIFY and migrations."""
