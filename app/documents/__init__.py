"""Versioned JSON documents: a thread's state and a query's data, as logs of writes."""
