"""What the examples share and none is about: the command line, questions to a person, events in words."""
