"""Simulate a server of a language model: requests of a trace, passes of given times, two policies.

`gpuperf theory serve` is a discrete-event simulation; `study.py` is its entry.
"""
