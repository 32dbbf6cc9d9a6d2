"""The only rooms that touch hardware, or import a workload's file."""
