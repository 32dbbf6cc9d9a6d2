"""Hold figures that others published and several claims are checked against, with their sources.

`gpuperf devices` has the figures of data sheets; these are measurements by others.
"""

from __future__ import annotations

from collections.abc import Mapping

# Cycles of a dependent load, the middle of what was published. te42kyfo/gpu-benches (gpu-latency),
# markdewing/AI_kernels, the logs of HPMLL/NVIDIA-Hopper-Benchmark (arXiv 2402.13499).
CYCLES: Mapping[str, Mapping[str, float]] = {
    "A100": {"shared": 29, "L1": 34.5, "L2": 208, "far L2": 410.5, "DRAM": 553.5},
    "H100": {"shared": 29.9, "L1": 34, "L2": 265, "far L2": 476.5, "DRAM": 644},
}
FMA_CYCLES, MMA_CYCLES = 4.0, 28.9  # dependent; arXiv 2206.02874 (A100, m16n8k16: 24.7 to 33)
CORE_NS = {"FMA": 1.0, "L1": 1.25, "DRAM": 90.0}  # a CPU at 4 GHz: 4 and 5 cycles (uops.info)

# Bandwidth of L1 and L2 in TB/s: te42kyfo/gpu-benches (gpu-cache, gpu-l2-cache).
CACHE_TB = {"A100": {"L1": 19.1, "L2": 5.42}, "H100": {"L1": 25.2, "L2": 6.98}}
DRAM_NS = 354.0  # latency of an H100 SXM: 700 cycles at 1.98 GHz (a GH200 has 690): AI_kernels

# A kernel of 64 kB in µs, one stream of launches against a CUDA graph: gpu-small-kernels.
SMALL_KERNEL_US = {"streamed": 2.5, "graph": 1.3}

# A linear layer of 8192² on an H200 in µs by tokens: ai-dynamo/aiconfigurator, 095f58a.
LINEAR_US: Mapping[str, Mapping[int, float]] = {
    "bf16": {1: 34.9, 16: 34.4, 64: 37.0, 128: 37.1, 256: 47.7, 512: 90.3, 4096: 664},
    "fp8": {1: 22.3, 64: 24.6, 128: 26.7, 256: 33.7, 512: 55.9},
}
GPT_FAST = {"bf16": 104.9, "int8": 155.6, "int4": 196.8}  # tokens/s, 7B on an A100-80: its README
FLASH_TFLOPS = {"FA2": 370.0, "FA3": 648.0}  # forward on an H100: Shah et al. (2024)
COPY_TB = 4.01  # copy on an H200: Azure's measurements of the ND H200 v5
LLAMA_8B = {"parameters": 8.03e9, "layers": 32, "heads": 32, "d": 128}  # its configuration
KV_USED = (0.204, 0.382)  # used share of reserved caches: Kwon et al., vLLM (2023), figure 2
KV_PAGED_WASTE = 0.04  # the same paper

# Network of a host in Gbit/s: Google Cloud's a3-highgpu-2g, and a3-ultragpu-8g with 3,200 for 8.
HOST_GBIT = {"VM with 2 GPUs": 50.0, "host with 8 GPUs, a GPU": 3200 / 8}
