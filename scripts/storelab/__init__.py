"""Stores of state as servers: what scripts/bench-state and the tests start."""
