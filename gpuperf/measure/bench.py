"""One case, from its inputs to its record.

The order is fixed: inputs → build → check → warm-up → time → counters. A wrong result is a status,
never a time.
"""

from __future__ import annotations

import contextlib
import math
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

import torch

from gpuperf.errors import CannotMeasure, UnknownName, Unsupported, WorkloadError
from gpuperf.jit import begin_build
from gpuperf.measure.caveats import sample_caveats
from gpuperf.measure.checks import tensors_of
from gpuperf.measure.counters.case import CaseCounter
from gpuperf.measure.deviation import WrongResult
from gpuperf.measure.device import Device
from gpuperf.measure.error_origin import describe_error, no_memory, read_back
from gpuperf.measure.forecast import CALLS, Forecast
from gpuperf.measure.inputs import ByteCounter, TooLarge, bind_make, refill
from gpuperf.measure.launches import launches_of, with_launches
from gpuperf.measure.refusals import NoTime
from gpuperf.measure.result_tensors import share_memory
from gpuperf.measure.settings import kept_settings
from gpuperf.measure.stopwatch import Stopwatch, Timing
from gpuperf.measure.telemetry import Meter, telemetry_caveats
from gpuperf.measure.timer_comparison import TimerComparison
from gpuperf.measure.timers.timer import Call, CannotBlock
from gpuperf.measure.verify import Rotation, Turn, Verifier
from gpuperf.measure.warmup import warm_up
from gpuperf.model.contract import Contract, Counting, Fingerprint
from gpuperf.model.cost import Cost, Work
from gpuperf.model.record import Caveat, Memory, Record, Status
from gpuperf.model.workload import Case, Implementation, Point, Workload

T = TypeVar("T")

READ_EVERY_S = 0.05  # telemetry, and signs of life
MOST_COPIES, ROTATED_L2_SIZES = 64, 3  # of the inputs, in `rotate`
SMALLER = "choose smaller sizes"
EVICTED_L2_SIZES = 2  # under which some of them are still there


class _Stop(NoTime):
    """The case ends here, with a status and a sentence."""

    def __init__(self, status: Status, reason: str, hint: str = "") -> None:
        super().__init__(status, reason, hint)


@dataclass
class Bench:
    """Measures cases on one device; `tell(phase, samples)` hears of the progress, and `timed` of a
    record that has all but its counters."""

    device: Device
    stopwatch: Stopwatch | TimerComparison
    meter: Meter
    fingerprint: Fingerprint
    tell: Callable[[str, int], None] = lambda phase, samples: None
    counting: Counting = "off"
    timed: Callable[[Record], None] = lambda record: None
    forecast: Forecast = field(default_factory=Forecast)
    _known: Record = field(init=False)  # of the case, whatever becomes of it
    _told: float = field(default=0.0, init=False)
    _read: float = field(default=0.0, init=False)

    def measure(
        self,
        workload: Workload,
        case: Case,
        contract: Contract,
        run: str,
        seed: int,
        extra_s: float = 0.0,
    ) -> Record:
        """The record of one case; whatever goes wrong in it becomes its status. The device spins
        for *extra_s* behind each call that is timed.

        Raises: RuntimeError when the device itself has failed, and nothing more can be measured.
        """
        record = Record(
            run=run,
            case=case,
            contract=contract,
            status="error",
            fingerprint=replace(
                self.fingerprint,
                hard={**self.fingerprint.hard, "workload_version": workload.version},
            ),
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            timer=self.stopwatch.timer.facts,
            seed=seed,
        )
        self._known = record
        try:
            with kept_settings():
                return self._measure(record, workload, extra_s)
        except NoTime as stop:
            return replace(self._known, status=stop.status, reason=stop.reason, hint=stop.hint)
        except (torch.OutOfMemoryError, MemoryError) as error:
            return replace(self._known, status="oom", reason=no_memory(error), hint=SMALLER)
        except CannotBlock as error:
            return replace(
                self._known,
                status="cannot-block",
                reason=str(error),
                hint="choose --timer events, which measures launch cost too",
            )
        except CannotMeasure as error:
            status: Status = "skipped" if isinstance(error, Unsupported) else "error"
            return replace(self._known, status=status, reason=str(error), hint=error.hint)
        except Exception as error:
            self.device.synchronize()  # raises when the context is lost: then the worker must end
            if "can't allocate memory" in str(error):
                return replace(self._known, status="oom", reason=no_memory(error), hint=SMALLER)
            reason, hint = describe_error(error, workload, case.implementation)
            return replace(self._known, status="error", reason=reason, hint=hint)
        finally:
            if self.device.torch.type == "cuda":
                torch.cuda.empty_cache()

    def can_begin(self, workload: Workload, case: Case, contract: Contract) -> bool:
        """Whether *case* is supported here, and fits into the memory; nothing of it is made."""
        record = Record(run="", case=case, contract=contract, status="error")
        try:
            self._planned(record, workload, CaseCounter(self.device, "off", lambda: None))
        except Exception:  # whatever it is, measuring the case says it
            return False
        return True

    def _measure(self, record: Record, workload: Workload, extra_s: float) -> Record:
        counter = CaseCounter(self.device, self.counting, lambda: self.tell("counters", 0))
        implementation, record, memory = self._planned(record, workload, counter)
        case, contract, point = record.case, record.contract, Point(record.case.point)
        self.tell("inputs", 0)
        make = bind_make(self.device.torch, record.seed, contract.data)
        inputs = workload.inputs(point, make)
        held = self._allocated()
        build_s, call = self._timed(lambda: self._build(implementation, record, inputs))
        first_call_s, output = self._timed(call)
        self._refuse_long(record, first_call_s)
        self.tell("check", 0)
        verifier = self._verifier(workload, implementation, record)
        turns = [Turn(inputs, call)]
        check = self._verified(partial(verifier.before, turns[0], output))
        del output
        self.tell("warm-up", 0)
        rotated: list[Caveat] = []
        built = call
        if contract.cache == "rotate":
            call, rotated = self._rotating(verifier, record, turns, memory)
        if contract.data == "zeros":
            refill(inputs, workload.inputs(point, make))  # the check was of other values
        if extra_s:
            call = self.device.delayed(call, extra_s)
        least = contract.warmup_calls - 2
        warm = warm_up(call, self.device.synchronize, first_call_s, least)
        self._refuse_long(record, warm.call_s, calls=1)
        memory = self._call_memory(memory, call, held, inputs)
        self.meter.summary()  # forgets what was read before the samples
        stopwatch = self.stopwatch.with_hooks(
            self._watch, self._heard(verifier), verifier.witness.keeping
        )
        timing = stopwatch.take(call, contract, warm.call_s, self._fits_cache(memory))
        telemetry = self.meter.summary()
        _refuse_fallback(implementation, timing)
        self.tell("check", 0)
        self._verified(lambda: verifier.after(turns, stopwatch.repeat(call), warm.call_s))
        if contract.data == "zeros":
            refill(inputs, workload.inputs(point, make))
        timing = self._launched(call, timing)
        record = replace(
            _with_times(record, timing),
            build_s=build_s,
            first_call_s=first_call_s,
            calls_until_steady=warm.calls,
            check=check,
            telemetry=telemetry,
            memory=memory,
            chosen=dict(getattr(built, "chosen", {})),
        )
        if record.samples and record.cost:
            self.forecast.note(case, record.cost, min(record.samples.values_s))
        doubts = sample_caveats(record, timing, workload, point, self.device.facts.max_sm_clock_hz)
        caveats = (*telemetry_caveats(telemetry), *rotated, *timing.caveats, *doubts)
        record = replace(record, caveats=caveats)
        if self.counting != "off":
            self.timed(record)  # whatever becomes of the worker now
        return counter.count(record, call, timing)

    def _planned(
        self, record: Record, workload: Workload, counter: CaseCounter
    ) -> tuple[Implementation, Record, Memory]:
        """What can be said of the case before anything of it is allocated."""
        point = Point(record.case.point)
        implementation = self._implementation(workload, record.case)
        self._refuse_unsupported(implementation, point)
        cost = read_back(workload.cost(point), Cost, "cost")
        work = read_back(implementation.work(point), Work, "work") if implementation.work else None
        counter.open()
        self._known = replace(record, cost=cost, work=work)
        memory = self._refuse_too_large(workload, point, cost)
        self._known = replace(self._known, memory=memory)
        self._refuse_long(self._known)
        return implementation, self._known, memory

    def _refuse_long(self, record: Record, call_s: float | None = None, calls: int = CALLS) -> None:
        """Skip a case on a CPU whose *calls* would exceed the budget."""
        if self.device.facts.kind == "cpu" and record.cost is not None:
            told = self.forecast.refusal(record.case, record.cost, record.contract, call_s, calls)
            if told is not None:
                raise _Stop("skipped", *told)

    def _build(
        self, implementation: Implementation, record: Record, inputs: Mapping[str, Any]
    ) -> Call:
        case, contract = record.case, record.contract
        begin_build(case.id, lambda call: self.stopwatch.time_candidate(call, contract))
        call = implementation.build(inputs, Point(case.point), case.options)
        if not callable(call):
            told = f"build of {implementation.name} returned a {type(call).__name__}, no function"
            raise WorkloadError(told, "it returns a function without arguments: return lambda: …")
        return call

    def _rotating(
        self, verifier: Verifier, record: Record, turns: list[Turn], memory: Memory
    ) -> tuple[Call, list[Caveat]]:
        """The call of *turns* and others like it in turn, which are added there; the inputs of all
        together are several times the L2."""
        case, one = record.case, memory.inputs_bytes + memory.output_bytes
        l2 = self.device.facts.l2_bytes or 0
        wanted = min(MOST_COPIES, 1 + math.ceil(ROTATED_L2_SIZES * l2 / max(1, one)))
        room = int(self.device.free_bytes() / 2 / max(1, memory.inputs_bytes))
        for copy in range(1, max(2, min(wanted, room))):
            make = bind_make(self.device.torch, record.seed + 1 + copy, record.contract.data)
            inputs = verifier.workload.inputs(Point(case.point), make)
            turns.append(Turn(inputs, self._build(verifier.implementation, record, inputs)))
            self._verified(partial(verifier.before_copy, turns[-1], copy))
        together = len(turns) * one
        doubts = []
        if not l2 or together < EVICTED_L2_SIZES * l2:
            told = f"{together / l2:.2g} of the L2" if l2 else "maybe less than the cache"
            doubts.append(
                Caveat(
                    "cache-resident",
                    f"the {len(turns)} copies in rotation are together {told}: part of them stays",
                    "--cache cold flushes it before each sample",
                )
            )
        rotation = Rotation([turn.call for turn in turns])
        verifier.witness.turn = lambda: rotation.latest
        return rotation, doubts

    def _fits_cache(self, memory: Memory) -> bool:
        l2 = self.device.facts.l2_bytes
        return l2 is not None and memory.inputs_bytes + memory.output_bytes <= l2

    def _implementation(self, workload: Workload, case: Case) -> Implementation:
        by_name = {i.name: i for i in workload.implementations}
        if case.implementation not in by_name:
            raise UnknownName("implementation", case.implementation, by_name)
        return by_name[case.implementation]

    def _refuse_unsupported(self, implementation: Implementation, point: Point) -> None:
        facts = self.device.facts
        dtype = str(point["dtype"])
        if dtype not in facts.dtypes:
            raise _Stop("skipped", f"{facts.name} does not compute in {dtype}")
        reason = implementation.supports(point, facts)
        if reason:
            raise _Stop("skipped", reason)

    def _refuse_too_large(self, workload: Workload, point: Point, cost: Cost) -> Memory:
        """Count the bytes before anything is allocated."""
        counter = ByteCounter()
        written = sum(b.written for b in cost.bytes if b.channel == "dram")
        with contextlib.suppress(TooLarge):  # what was counted by then is over any memory
            workload.inputs(point, counter)
        # The check draws the inputs once more, and puts them in the place of the first.
        needed, free = 2 * counter.bytes + written, self.device.free_bytes()
        if needed > free:
            raise _Stop(
                "oom", f"needs {needed / 1e9:,.1f} GB, and {free / 1e9:,.1f} GB are free", SMALLER
            )
        if self.device.torch.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device.torch)
        return Memory(inputs_bytes=counter.bytes, output_bytes=written)

    def _timed(self, what: Callable[[], Any]) -> tuple[float, Any]:
        self.device.synchronize()
        start = time.perf_counter()
        result = what()
        self.device.synchronize()
        return time.perf_counter() - start, result

    def _verifier(
        self, workload: Workload, implementation: Implementation, record: Record
    ) -> Verifier:
        flops = record.cost.flops if record.cost else ()
        return Verifier(
            self.device,
            workload,
            implementation,
            Point(record.case.point),
            record.contract.data,
            flops[0].accumulate if flops else "",
        )

    def _verified(self, check: Callable[[], T]) -> T:
        """What *check* returns; a wrong result, or too little memory for it, ends the case."""
        try:
            return check()
        except WrongResult as wrong:
            raise _Stop("wrong", f"the result {wrong}", wrong.hint) from None
        except (torch.OutOfMemoryError, MemoryError) as error:
            raise _Stop(
                "oom",
                f"the float64 reference does not fit beside it: {no_memory(error)}",
                "the implementation itself ran; choose smaller sizes to check it",
            ) from None

    def _heard(self, verifier: Verifier) -> Callable[[int], None]:
        """What is called between the samples."""

        def heard(count: int) -> None:
            verifier.witness.heard()
            now = time.perf_counter()
            if now - self._told > READ_EVERY_S:
                self._told = now
                self.tell("time", count)

        return heard

    def _watch(self) -> None:
        """Reads the telemetry while a sample runs: between samples the card has calmed down."""
        now = time.perf_counter()
        if now - self._read > READ_EVERY_S:
            self._read = now
            self.meter.read()

    def _launched(self, call: Call, timing: Timing) -> Timing:
        """*timing* with how its kernels are launched."""
        if not timing.launches:
            return timing

        def run() -> None:
            call()
            self.device.synchronize()

        try:
            kernels = with_launches(timing.kernels, timing.launches, launches_of(run))
        except Exception:
            self.device.synchronize()  # as in `measure`; else nothing here may cost the time
            return timing
        return replace(timing, kernels=kernels)

    def _allocated(self) -> int:
        cuda = self.device.torch.type == "cuda"
        return torch.cuda.memory_allocated(self.device.torch) if cuda else 0

    def _call_memory(
        self, memory: Memory, call: Call, held: int, inputs: Mapping[str, Any]
    ) -> Memory:
        """*memory* with the peak so far, and with what one call has at most beyond *held* bytes."""
        if self.device.torch.type != "cuda":
            return memory
        device = self.device.torch
        peak = torch.cuda.max_memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        output = call()
        self.device.synchronize()
        most = torch.cuda.max_memory_allocated(device)
        # What a CUDA graph keeps for its results is in no count of the allocator's.
        least = 0 if _is_an_input(output, inputs) else memory.output_bytes
        return replace(memory, peak_bytes=max(peak, most), call_bytes=max(least, most - held))


def _is_an_input(output: Any, inputs: Mapping[str, Any]) -> bool:
    """Whether the result lies where an input does, as one that is filled or changed in place."""
    given = [value for value in inputs.values() if isinstance(value, torch.Tensor)]
    return any(share_memory(tensor, value) for tensor in tensors_of(output) for value in given)


def _with_times(record: Record, timing: Timing) -> Record:
    return replace(
        record,
        status="ok",
        times=timing.times,
        primary=timing.primary,
        stop=timing.stop,
        timer=timing.facts,
        kernels=timing.kernels,
        capture_s=timing.capture_s,
    )


def _refuse_fallback(implementation: Implementation, timing: Timing) -> None:
    """A library may run another kernel than it was told to, and say nothing."""
    names = [kernel.name for kernel in timing.kernels]
    if implementation.runs and names and not any(re.search(implementation.runs, n) for n in names):
        shown = ", ".join(name[:60] for name in names[:3])
        raise _Stop(
            "error",
            f"other kernels ran than those of {implementation.name}: {shown}",
            "the library fell back; its time would be that of another implementation",
        )
