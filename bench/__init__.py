"""What a run costs: the service against the least program that could do the same, on this machine."""
