"""Commands for people at a terminal: they talk to the public API of a service, like any other client."""
