"""One module or package per transport of tool calls."""
