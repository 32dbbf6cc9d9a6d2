"""Triton's kernels run under its interpreter in the tests' own process, where there is no GPU."""

from __future__ import annotations

import importlib
import os
import warnings

import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of torch's own making
    importlib.import_module("torch._inductor.compile_fx")

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
    from gpuperf.measure.registry import load_source

    load_source("gpuperf.kernels")  # Triton asks when a kernel is defined
    importlib.import_module("triton.experimental.gluon")  # ... and when it loads its own
    del os.environ["TRITON_INTERPRET"]  # not for what the tests start
