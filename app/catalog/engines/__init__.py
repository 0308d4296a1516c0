"""One module for each kind of source. They run in helper processes only."""
