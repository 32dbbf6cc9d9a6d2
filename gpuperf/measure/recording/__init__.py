"""Record kernels, copies and memsets by CUPTI's activity API, without torch.profiler."""
