"""Fixtures that several tests of the gate share."""

from repositories import project

__all__ = ["project"]
