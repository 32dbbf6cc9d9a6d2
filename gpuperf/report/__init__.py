"""Renderers: they read records, never a live run."""
