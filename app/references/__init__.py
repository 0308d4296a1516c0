"""Typed handles to values that stay out of prompts."""
