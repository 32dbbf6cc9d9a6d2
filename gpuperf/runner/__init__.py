"""Which workloads there are, which cases to measure, living workers, kept results."""
