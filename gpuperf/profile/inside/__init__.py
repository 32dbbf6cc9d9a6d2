"""The part of `profile` that runs inside the profiled process."""
