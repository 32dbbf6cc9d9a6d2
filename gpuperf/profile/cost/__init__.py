"""FLOPs and bytes of each operator that torch dispatches, by its arguments."""
