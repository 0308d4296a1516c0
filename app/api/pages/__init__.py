"""Pages for people and agents: the documentation, llms.txt, and the page of the API document."""
