"""The authoring language in Python: agents, tools, plans, references, and runtimes.

Everything here is data for the service but the functions of the author: handlers of tools, predicates,
dispatchers, glimpses. They are kept beside the data, in `DefinedRuntime`, and never cross the wire.
"""
