"""Typed plans: lifecycle, dispatch of approved actions."""
