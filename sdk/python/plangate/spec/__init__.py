"""The spec language: what a system of agents is, as frozen data, and the checks that make it registrable."""
