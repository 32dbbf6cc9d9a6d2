"""The part of `bench` that runs in the process of the user's script."""
