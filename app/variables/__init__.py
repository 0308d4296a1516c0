"""Variables: values in the arguments of calls and plans, and results written to paths."""
