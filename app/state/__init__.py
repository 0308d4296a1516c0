"""Documents that are written by tool calls: a thread's state, a query's data objects. Logs, and folds over them."""
