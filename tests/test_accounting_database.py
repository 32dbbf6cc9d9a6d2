"""Every registered operator against torch's own database of operators and their sample inputs."""

from __future__ import annotations

import itertools
import sys
import types
import unittest
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from seen import seen
from test_accounting_torch import FAMILIES

from gpuperf.analysis.accounting import BARE, RULES, account
from gpuperf.analysis.operators.arguments import Arguments
from gpuperf.model.aten import Call

SAMPLES = 2  # of an operator of the database
# How many results there are, or of which shape, follows from values, or from a list that is not
# inferred: where nobody saw them they are not counted.
UNSEEN = """
    _embedding_bag _to_copy _unique2 as_strided_copy block_diag bucketize diag_embed
    diagonal_copy expand_copy histc index isin log_sigmoid_forward masked_select narrow_copy
    nonzero native_layer_norm_backward split_with_sizes_copy unbind_copy unfold_copy
"""
# Operators of one vendor's library, of quantised or nested tensors, of compilers, or that only ask.
ELSEWHERE = """
    flex_attention real_if_close __ilshift__ __irshift__ __lshift__ __rshift__ _addmm_activation
    _amp_foreach_non_finite_check_and_unscale _assert_async _assert_tensor_metadata
    _batch_norm_no_update _conj_copy _convolution _cudnn_rnn _cudnn_rnn_backward _cummax_helper
    _cummin_helper _embedding_bag_dense_backward _embedding_bag_forward_only _fused_dropout
    _fused_sdp_choice _grouped_mm _index_put_impl _int_mm _is_all_true _is_any_true
    _masked_scale _masked_softmax _native_batch_norm_legit_no_training
    _native_multi_head_attention _neg_view _neg_view_copy _philox_normal _philox_uniform
    _pin_memory _reshape_alias _reshape_alias_copy
    _scaled_dot_product_fused_attention_overrideable
    _scaled_dot_product_fused_attention_overrideable_backward _slow_conv2d_backward
    _slow_conv2d_forward _stack _transformer_encoder_layer_fwd _unsafe_index _unsafe_index_put
    _upsample_bicubic2d_aa _upsample_bicubic2d_aa_backward _weight_int8pack_mm
    adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d avg_pool1d
    batch_norm_backward_elemt batch_norm_backward_reduce batch_norm_gather_stats_with_counts
    batch_norm_stats conv_depthwise3d convolution_backward_overrideable convolution_overrideable
    cudnn_batch_norm_backward cudnn_convolution_add_relu cudnn_convolution_relu
    cudnn_convolution_transpose detach_copy indices is_pinned is_same_size lift lift_fresh_copy
    linear linear_backward log_softmax miopen_batch_norm miopen_batch_norm_backward
    miopen_convolution miopen_convolution_transpose miopen_depthwise_convolution miopen_rnn
    mkldnn_adaptive_avg_pool2d_backward mkldnn_convolution mkldnn_linear mkldnn_max_pool2d
    mkldnn_max_pool2d_backward mkldnn_max_pool3d mkldnn_rnn_layer mkldnn_rnn_layer_backward
    resize resize_as select_copy set slice_copy slice_inverse slow_conv3d_forward
    slow_conv_dilated2d slow_conv_dilated3d slow_conv_transpose2d slow_conv_transpose3d softmax
    split_copy unique_dim unsafe_split_with_sizes values _foreach_copy _foreach_pow
    _fused_adagrad _fused_sgd random repeat_interleave native_dropout
"""


def name_of(call: Call) -> str:
    return Arguments(Call(call.name)).name


def database() -> Iterator[Any]:
    """Calls of each operator of torch's database, forward and backward."""
    with pytest.MonkeyPatch.context() as patch:
        if "expecttest" not in sys.modules:  # the database's module imports it for its own tests
            stub: Any = types.ModuleType("expecttest")
            stub.TestCase = unittest.TestCase
            patch.setitem(sys.modules, "expecttest", stub)
        from torch.testing._internal.common_methods_invocations import op_db
    for operator in op_db:
        for dtype in (torch.float32, torch.int64):
            try:
                samples = operator.sample_inputs("cpu", dtype, dtype.is_floating_point)
                yield from ((operator, one) for one in itertools.islice(samples, SAMPLES))
                break
            except Exception:  # a dtype that it does not take
                continue


def run(operator: Any, sample: Any) -> None:
    result = operator(sample.input, *sample.args, **sample.kwargs)
    first = result[0] if isinstance(result, list | tuple) and result else result
    if isinstance(first, torch.Tensor) and first.requires_grad:
        first.sum().backward()


def lists() -> Iterator[Call]:
    """Calls of the operators over lists of tensors, each with the arguments that it takes."""
    def some() -> list[torch.Tensor]:
        return [torch.rand(3, 4) + 0.5, torch.rand(5) + 0.5]

    for name in sorted(one for one in RULES if one.startswith("_foreach_")):
        operator = getattr(torch, name, None) or getattr(torch, f"{name}_", None)
        for arguments in ((), (some(),), (2.0,), (some(), some()), (some(), 0.5)):
            try:
                yield from seen(lambda o=operator, a=arguments: o(some(), *a))
                break
            except (RuntimeError, TypeError, ValueError):
                continue


@pytest.fixture(scope="module")
def calls() -> list[Call]:
    """All of them that have a rule, of each once for each shape."""
    found: dict[Call, None] = {}
    for operator, sample in database():
        try:
            found |= dict.fromkeys(seen(lambda o=operator, s=sample: run(o, s)))
        except Exception:  # a sample that has no gradient, or not here
            continue
    for table in FAMILIES.values():
        found |= dict.fromkeys(seen(table))
    found |= dict.fromkeys(lists())
    return [call for call in found if name_of(call) in RULES]


def test_no_rule_fails_on_a_call_of_torch(calls: list[Call]) -> None:
    assert not {name_of(call) for call in calls if not account(call).known}


def test_what_nobody_saw_is_inferred(calls: list[Call]) -> None:
    differing = {
        name_of(call) for call in calls if account(call) != account(replace(call, outputs=()))
    }
    assert differing <= set(UNSEEN.split())


def hidden(name: str) -> bool:
    """Whether no mode sees the operator *name* on a CPU: it is taken apart before, or has no kernel
    there."""
    kernels = set()
    for own in (name, f"{name}_"):
        packet = getattr(torch.ops.aten, own, None)
        for overload in packet.overloads() if packet is not None else ():
            full = getattr(packet, overload).name()
            for key in ("CPU", "CompositeExplicitAutograd", "CompositeImplicitAutograd",
                        "CompositeExplicitAutogradNonFunctional"):  # fmt: skip
                try:
                    if torch._C._dispatch_has_kernel_for_dispatch_key(full, key):
                        kernels.add(key)
                except RuntimeError:  # an overload for TorchScript alone
                    continue
    return kernels <= {"CompositeImplicitAutograd"}


def test_every_registered_operator_was_called_here(calls: list[Call]) -> None:
    missing = RULES.keys() - {name_of(call) for call in calls} - set(ELSEWHERE.split()) - BARE
    assert not {name for name in missing if not hidden(name)}
