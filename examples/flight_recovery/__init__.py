"""A day of late departures: planned by agents, approved by a person, carried out once."""
