"""The single path of a tool call: validate, fill variables, gate, record the intent, dispatch, bound the result."""
