"""The parts of the judge that run in workers: they import torch, a task, or a submission."""
