"""Triton's kernels run under its interpreter in the tests' own process, where there is no GPU."""

from __future__ import annotations

import importlib
import os
import warnings

import torch

# Triton asks when a kernel is defined: ours, its own (gluon), and those of torch's compiler.
KERNELS = ("triton.experimental.gluon", "torch._inductor.compile_fx")

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
    from gpuperf.measure.registry import load_source

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own making
        for module in KERNELS:
            importlib.import_module(module)
    load_source("gpuperf.kernels")
    del os.environ["TRITON_INTERPRET"]  # not for what the tests start
