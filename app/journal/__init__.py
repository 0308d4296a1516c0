"""The durable record of runs: events, work records, the group-commit writer, streams."""
