"""Common parts of the examples: the command line, prompts to a person, printed events."""
