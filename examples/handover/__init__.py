"""Three agents hand a repair over to each other: design, patch and verification are artifacts."""
