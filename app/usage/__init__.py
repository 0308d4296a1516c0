"""Work records as people read them, and what work used, cost and kept out of prompts."""
