"""Measure Python callables in the program's own process, on tensors that exist already."""
