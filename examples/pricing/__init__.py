"""Price changes and promotions: planned by agents, revised by a person, put on the shelves once."""
