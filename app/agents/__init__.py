"""The agent loop: model calls, prompts, memory, providers and builtin tools."""
