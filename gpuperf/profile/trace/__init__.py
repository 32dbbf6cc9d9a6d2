"""Read traces of torch.profiler and locate the steps in them."""
