"""The top floor: HTTP, worker process, command line."""
