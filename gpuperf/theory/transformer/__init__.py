"""Compute the parameters, the memory and the passes of a transformer that writes text."""
