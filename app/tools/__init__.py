"""Tools: the ledger of calls, claims by client processes, and the transports."""
