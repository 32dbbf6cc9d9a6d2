"""Read traces of torch.profiler and find the steps in them."""
