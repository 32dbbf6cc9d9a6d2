"""Group the calls of a step by operator, shapes and direction, with their costs and kernels.

Calls with their tensors come from the accounting pass, kernels and times from the trace. The cost
of a step is that of the calls in the accounting pass. An operator that only the trace has (another
shape, a compiled kernel) has a time, and a cost that is inferred from its inputs and counts for its
own row only; so has every operator of an imported trace, without an accounting pass.
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

MOST_LINES = 3  # lines of the program for each operator
NOTHING = OperatorCost(Cost(), Work(), "view", True)
WRAPPERS: OperatorKey = ("wrappers, autograd and Python", (), False)
# Operators that a dispatch mode does not observe on some devices: torch decomposes them before
# (their kernel is a CompositeImplicitAutograd one), or calls them from an observed operator.
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
# A node of autograd, which has operators inside it and may launch work of its own.
NODE = re.compile(r"\w+Backward\d*|torch::autograd::\w+")
COMPOSITE = frozenset(f"aten::{name}" for name in NAMES.split())


@dataclass
class OperatorGroup:
    """The calls of one operator in a step, with equal tensors and direction.

    `per_call` is the cost of one call. A step of the accounting pass has `accounted` calls, of
    which `repeated` compute again what the forward pass computed; a traced step has `traced` calls,
    which take `device_s` seconds of the device and `host_s` of the host. `lines` are lines of the
    program that make the calls, `graph` the torch.compile graph around them.
    """

    call: Call
    per_call: OperatorCost
    accounted: float = 0.0
    repeated: float = 0.0
    traced: float = 0.0
    lines: dict[str, None] = field(default_factory=dict)
    device_s: float = 0.0
    host_s: float = 0.0
    kernels: tuple[Kernel, ...] = ()
    timed: bool = False
    graph: str = ""

    @property
    def count(self) -> float:
        """Return the calls in a traced step, to which its times belong; else the accounted ones."""
        return self.traced or self.accounted


def _cost_of(observed: ObservedCall, tf32: bool) -> OperatorCost:
    """Return the cost that the program registered for its own operator, or else gpuperf's."""
    if observed.cost is None:
        return account(observed.call, tf32)
    kinds = {flops.kind for flops in observed.cost.flops}
    kind: Kind = "matmul" if "matmul" in kinds else "elementwise"
    return OperatorCost(observed.cost, Work(observed.cost.flops, observed.cost.bytes), kind, True)


def key_of(call: Call, backward: bool) -> OperatorKey:
    """Return the name, the tensors and the direction that calls of one group share."""
    return call.name, tuple((t.shape, t.dtype) for t in call.tensors), backward


def grouped(
    observed: Iterable[ObservedCall], steps: int, tf32: bool
) -> dict[OperatorKey, OperatorGroup]:
    """Group the calls *observed* in *steps* steps by key, without calls that only make views.

    With *tf32* the FLOPs of fp32 matmuls are tf32 ones.
    """
    groups: dict[OperatorKey, OperatorGroup] = {}
    for entry in observed:
        key = key_of(entry.call, entry.backward)
        if key not in groups:
            groups[key] = OperatorGroup(entry.call, _cost_of(entry, tf32))
        group = groups[key]
        group.accounted += 1 / steps
        group.repeated += entry.again / steps
        if entry.where and len(group.lines) < MOST_LINES:
            group.lines[entry.where] = None
    return {key: group for key, group in groups.items() if group.per_call.kind != "view"}


def _by_kernel(calls: CallGroup) -> Iterable[CallGroup]:
    """Yield *calls*, split by kernel if no operator launched them (Triton called by hand)."""
    if calls.call.name or not calls.kernels:
        yield calls
        return
    for kernel in calls.kernels:
        yield replace(
            calls,
            call=Call(kernel.name),
            count=kernel.count,
            kernels=(kernel,),
            device_s=kernel.time_s or 0.0,
            host_s=0.0,
        )


def _loose(call: Call) -> tuple[str, tuple[tuple[int, ...], ...]]:
    """Return the name and the shapes of *call*, which a trace and a dispatch mode report equally.

    Only one of the two reports a number as a tensor, and a trace has no dtypes of tensors in lists.
    """
    return call.name, tuple(t.shape for t in call.tensors if t.shape)


def _matching(
    groups: Mapping[OperatorKey, OperatorGroup],
    alike: Mapping[object, Sequence[OperatorKey]],
    calls: CallGroup,
) -> OperatorKey:
    """Return the key of the group that matches *calls*; its own key where none does."""
    own = key_of(calls.call, calls.backward)
    if own in groups:
        return own
    name, shapes = _loose(calls.call)
    # torch.compile passes the result of an operator among its arguments.
    near = alike.get((name, shapes)) or alike.get((name, shapes[:-1]), ())
    # Some traces have no shapes for lists of tensors: then a name with one group decides.
    if not near and not calls.call.tensors and len(alike.get(calls.call.name, ())) == 1:
        near = alike[calls.call.name]
    return next((key for key in near if key[2] == calls.backward), near[0] if near else own)


def visible(timeline: Timeline) -> frozenset[str]:
    """Return the operators of *timeline* that a dispatch mode would have observed and whose cost is
    known, by name, without those that only make views."""
    names = {call.name: call for call in timeline.calls if plain_name(call.name) not in COMPOSITE}
    accounted = {name: account(call) for name, call in names.items()}
    return frozenset(n for n, a in accounted.items() if a.kind not in ("view", "unknown"))


def containers(timeline: Timeline, observed: Container[str]) -> set[Call]:
    """Return the calls with operators of *observed* inside them, whose cost would count twice
    (`aten::linear` calls `aten::addmm`)."""
    parents, calls = call_stacks(timeline).parent.tolist(), timeline.operators.call.tolist()
    chosen = [call.name in observed for call in timeline.calls]
    outer: set[int] = set()
    for i, parent in enumerate(parents):
        while chosen[calls[i]] and parent >= 0 and calls[parent] not in outer:
            if not chosen[calls[parent]]:
                outer.add(calls[parent])
            parent = parents[parent]
    return {timeline.calls[i] for i in outer}


def add_traced(
    groups: dict[OperatorKey, OperatorGroup],
    traced: Sequence[CallGroup],
    steps: int,
    observed: Container[str] | None,
    containers: Container[Call],
) -> None:
    """Add the times and kernels of a step, those of *traced* over *steps*, to matching *groups*.

    *observed* are the operators in the accounting pass, by name (None without that pass): a traced
    call that is not among them and launched nothing is a wrapper or autograd's own. The calls
    *containers* get no cost, as the operators inside them have it.
    """
    alike: dict[object, list[OperatorKey]] = {}
    for key, group in groups.items():
        for loose in (_loose(group.call), group.call.name):
            alike.setdefault(loose, []).append(key)
    for calls in (part for whole in traced for part in _by_kernel(whole)):
        key = _matching(groups, alike, calls)
        if key not in groups:
            accounted = account(calls.call)
            if accounted.kind == "view" and not calls.device_s:
                continue
            linked = accounted.kind == "communication"
            wraps = not linked and _wraps(calls, observed, containers)
            if wraps and not calls.device_s:
                key = WRAPPERS
                groups.setdefault(key, OperatorGroup(Call(key[0]), NOTHING))
            else:
                groups[key] = OperatorGroup(calls.call, NOTHING if wraps else accounted)
        _add(groups[key], calls, steps)


def _wraps(calls: CallGroup, observed: Container[str] | None, containers: Container[Call]) -> bool:
    """Return whether *calls* only wrap other operators, so that they have no cost of their own."""
    if observed is not None and calls.call.name in observed:
        return False  # another shape than in the accounted steps
    silent = observed is not None and not calls.device_s
    return silent or calls.call in containers or NODE.fullmatch(calls.call.name) is not None


def _add(group: OperatorGroup, calls: CallGroup, steps: int) -> None:
    group.traced += calls.count / steps
    group.device_s += calls.device_s / steps
    group.host_s += calls.host_s / steps
    group.kernels += tuple(
        replace(
            kernel,
            count=max(1, round(kernel.count / steps)),
            time_s=None if kernel.time_s is None else kernel.time_s / steps,
        )
        for kernel in calls.kernels
    )
    group.timed = True
    group.graph = group.graph or calls.graph
