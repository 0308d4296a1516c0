"""Fault scenarios with figures that must hold: `make storm` runs them at full size, `make test` small."""
