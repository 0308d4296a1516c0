"""The execution of queries: leases, the worker, the state of a running query and its work records."""
