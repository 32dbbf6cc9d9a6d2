"""Plan cases, supervise workers, and read and write run files and caches."""
