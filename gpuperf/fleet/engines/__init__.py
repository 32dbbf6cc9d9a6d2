"""Engines that start the unit on each host of a fleet, and collect its shard."""
