"""Captured text and samples to facts, facts to findings: one package for `check` and `diagnose`."""
