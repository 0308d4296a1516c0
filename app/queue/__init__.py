"""Which process works on which query: claims, leases, wake-ups."""
