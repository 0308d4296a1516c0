"""The day of late departures as a graph: values go from action to action, and no agent ever holds a row of them."""
