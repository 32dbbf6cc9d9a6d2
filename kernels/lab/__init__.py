"""Experiments, one file each: the prediction beside its kernel. The registry walks this package."""
