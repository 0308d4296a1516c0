"""The agent loop: model calls, prompts, memory, providers and built-in tools."""
