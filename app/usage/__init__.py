"""Work records for readers, and sums of what work used, cost and kept out of prompts."""
