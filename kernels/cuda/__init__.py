"""CUDA C sources, compiled at run time by `gpuperf.nvrtc`."""
