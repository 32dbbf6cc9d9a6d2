"""Read the hardware counters of calls and kernels through CUPTI."""
