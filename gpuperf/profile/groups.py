"""Which operator of a step computed what, and which kernels were its own?

The accounting pass knows every call of its steps with its results, the trace the kernels that each
launched; they are joined by name, shapes and direction. What a step computes is what the accounting
pass saw: an operator that only the trace shows (another shape, a compiled kernel) has its time and,
for its own row, a cost inferred from its inputs. Of a trace alone (an imported one) that is all.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuperf.model.aten import Call
from gpuperf.model.cost import Cost, Work
from gpuperf.model.program import ObservedCall
from gpuperf.model.record import Kernel
from gpuperf.model.timeline import Timeline
from gpuperf.profile.attribution import CallGroup, call_stacks
from gpuperf.profile.cost.accounting import OperatorCost, account, plain_name
from gpuperf.profile.cost.tally import Kind

OperatorKey = tuple[str, tuple[tuple[tuple[int, ...], str], ...], bool]

MOST_LINES = 3  # of an operator
NOTHING = OperatorCost(Cost(), Work(), "view", True)
WRAPPERS: OperatorKey = ("wrappers, autograd and Python", (), False)
# What a dispatch mode does not see, on one device or on all: torch takes these apart before (their
# kernel is a CompositeImplicitAutograd one), or calls them from one that is seen.
NAMES = """
    matmul linalg_matmul linear ger outer einsum lstm gru rnn_tanh rnn_relu _convolution conv1d
    conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d thnn_conv2d slow_conv3d
    scaled_dot_product_attention _scaled_dot_product_attention_math layer_norm _fused_rms_norm
    rms_norm group_norm batch_norm softmax log_softmax positive absolute negative fix square relu6
    rrelu arcsin arccos arctan arcsinh arccosh arctanh special_erf special_erfc special_expm1
    special_exp2 special_log1p special_i0 special_expit selu isfinite subtract multiply divide
    true_divide __and__ __or__ __xor__ __iand__ __ior__ __ixor__ float_power arctan2 special_xlogy
    isclose not_equal less less_equal greater greater_equal silu_backward mish_backward clip nanmean
    argsort msort l1_loss kl_div cross_entropy_loss nll_loss nll_loss_nd nll_loss2d max_pool1d
    max_pool2d max_pool3d avg_pool1d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d
    adaptive_max_pool1d dropout feature_dropout alpha_dropout diag repeat_interleave tile concat
    concatenate hstack vstack dstack column_stack argwhere one_hot native_channel_shuffle flipud
    fliplr item is_nonzero
"""
# A node of autograd, in which its operators stand: what it launches without one is its own.
NODE = re.compile(r"\w+Backward\d*|torch::autograd::\w+")
COMPOSITE = frozenset(f"aten::{name}" for name in NAMES.split())


@dataclass
class OperatorGroup:
    """Calls of one key, what one of them costs, and how many of them a step has: in the accounting
    pass (`seen`, of which `again` compute once more what was computed) and in the trace
    (`traced`)."""

    call: Call
    found: OperatorCost
    seen: float = 0.0
    again: float = 0.0
    traced: float = 0.0
    lines: dict[str, None] = field(default_factory=dict)
    device_s: float = 0.0
    host_s: float = 0.0
    kernels: tuple[Kernel, ...] = ()
    timed: bool = False
    graph: str = ""

    @property
    def count(self) -> float:
        """Calls of a step as its time counts them."""
        return self.traced or self.seen


def _accounted(one: ObservedCall, tf32: bool) -> OperatorCost:
    """By what the program says of its own operator, or by ours."""
    if one.cost is None:
        return account(one.call, tf32)
    kinds = {flops.kind for flops in one.cost.flops}
    kind: Kind = "matmul" if "matmul" in kinds else "elementwise"
    return OperatorCost(one.cost, Work(one.cost.flops, one.cost.bytes), kind, True)


def key_of(call: Call, backward: bool) -> OperatorKey:
    """What calls alike have in common."""
    return call.name, tuple((t.shape, t.dtype) for t in call.tensors), backward


def grouped(
    seen: Iterable[ObservedCall], steps: int, tf32: bool
) -> dict[OperatorKey, OperatorGroup]:
    """The calls *seen* in *steps* steps, those alike together, without those that only look."""
    groups: dict[OperatorKey, OperatorGroup] = {}
    for one in seen:
        key = key_of(one.call, one.backward)
        if key not in groups:
            groups[key] = OperatorGroup(one.call, _accounted(one, tf32))
        group = groups[key]
        group.seen += 1 / steps
        group.again += one.again / steps
        if one.where and len(group.lines) < MOST_LINES:
            group.lines[one.where] = None
    return {key: group for key, group in groups.items() if group.found.kind != "view"}


def _by_kernel(usage: CallGroup) -> Iterable[CallGroup]:
    """What no operator launched (a kernel of Triton, called by hand), by the names of kernels."""
    if usage.call.name or not usage.kernels:
        yield usage
        return
    for kernel in usage.kernels:
        yield replace(
            usage,
            call=Call(kernel.name),
            count=kernel.count,
            kernels=(kernel,),
            device_s=kernel.time_s or 0.0,
            host_s=0.0,
        )


def _loose(call: Call) -> tuple[str, tuple[tuple[int, ...], ...]]:
    """What a trace and a dispatch mode agree on: a number is a tensor to the one and none to the
    other, and of lists of tensors a trace has no dtypes."""
    return call.name, tuple(t.shape for t in call.tensors if t.shape)


def _matching(
    groups: Mapping[OperatorKey, OperatorGroup],
    alike: Mapping[object, Sequence[OperatorKey]],
    usage: CallGroup,
) -> OperatorKey:
    """The key of the group that *usage* is of; its own where there is none."""
    own = key_of(usage.call, usage.backward)
    if own in groups:
        return own
    name, shapes = _loose(usage.call)
    # What torch.compile calls has its result among its arguments.
    near = alike.get((name, shapes)) or alike.get((name, shapes[:-1]), ())
    # Of lists of tensors some traces have no shapes: then the name tells, where it is the only one.
    if not near and not usage.call.tensors and len(alike.get(usage.call.name, ())) == 1:
        near = alike[usage.call.name]
    return next((key for key in near if key[2] == usage.backward), near[0] if near else own)


def visible(timeline: Timeline) -> frozenset[str]:
    """Names in *timeline* that a dispatch mode would have seen, of those that cost anything."""
    names = {call.name: call for call in timeline.calls if plain_name(call.name) not in COMPOSITE}
    accounted = {name: account(call) for name, call in names.items()}
    return frozenset(n for n, a in accounted.items() if a.kind not in ("view", "unknown"))


def containers(timeline: Timeline, seen: Container[str]) -> set[Call]:
    """Calls that leave their work to others which are among *seen* (`aten::linear`, to
    `aten::addmm`): what these do must not count twice."""
    parents, calls = call_stacks(timeline).parent.tolist(), timeline.operators.call.tolist()
    chosen = [call.name in seen for call in timeline.calls]
    found: set[int] = set()
    for i, parent in enumerate(parents):
        while chosen[calls[i]] and parent >= 0 and calls[parent] not in found:
            if not chosen[calls[parent]]:
                found.add(calls[parent])
            parent = parents[parent]
    return {timeline.calls[i] for i in found}


def add_traced(
    groups: dict[OperatorKey, OperatorGroup],
    found: Sequence[CallGroup],
    steps: int,
    seen: Container[str] | None,
    containers: Container[Call],
) -> None:
    """The times and kernels of *found*, over *steps*, to the groups that they are of.

    *seen* are the names that the accounting pass saw: what it did not see, and launched nothing,
    is a wrapper or autograd's own. *containers* have no cost of their own.
    """
    alike: dict[object, list[OperatorKey]] = {}
    for key, group in groups.items():
        for loose in (_loose(group.call), group.call.name):
            alike.setdefault(loose, []).append(key)
    for usage in (one for whole in found for one in _by_kernel(whole)):
        key = _matching(groups, alike, usage)
        if key not in groups:
            accounted = account(usage.call)
            if accounted.kind == "view" and not usage.device_s:
                continue
            wraps = usage.call in containers or (seen is not None and not usage.device_s)
            wraps = wraps or NODE.fullmatch(usage.call.name) is not None
            if seen is not None and usage.call.name in seen:
                wraps = False  # another shape than in the steps that were accounted for
            if wraps and not usage.device_s:
                key = WRAPPERS
                groups.setdefault(key, OperatorGroup(Call(key[0]), NOTHING))
            else:
                groups[key] = OperatorGroup(usage.call, NOTHING if wraps else accounted)
        group = groups[key]
        group.traced += usage.count / steps
        group.device_s += usage.device_s / steps
        group.host_s += usage.host_s / steps
        group.kernels += tuple(
            replace(
                kernel,
                count=max(1, round(kernel.count / steps)),
                time_s=None if kernel.time_s is None else kernel.time_s / steps,
            )
            for kernel in usage.kernels
        )
        group.timed = True
        group.graph = group.graph or usage.graph
