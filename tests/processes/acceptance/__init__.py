"""The service as its users meet it: real processes, killed and frozen at every moment, judged from outside."""
