"""Measure one case, from its inputs to its record.

The order is fixed: inputs → build → check → warm-up → time → counters. A case whose result is wrong
gets the status `wrong` and no time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

import torch

from gpuperf.errors import CannotMeasure, UnknownName, Unsupported, WorkloadError
from gpuperf.jit import begin_build
from gpuperf.measure import gang
from gpuperf.measure.caveats import sample_caveats, telemetry_caveats
from gpuperf.measure.counters.case import CaseCounter
from gpuperf.measure.deviation import WrongResult
from gpuperf.measure.device import Device
from gpuperf.measure.energy import EnergyMeter
from gpuperf.measure.error_origin import describe_error, describe_no_memory, is_no_memory
from gpuperf.measure.forecast import CALLS, Forecast
from gpuperf.measure.inputs import bind_make, refill
from gpuperf.measure.isolation import restored_tf32
from gpuperf.measure.launches import launches_of, with_launches
from gpuperf.measure.readings import readings_of
from gpuperf.measure.refusals import (
    SMALLER,
    NoTime,
    refuse_alone,
    refuse_fallback,
    refuse_too_large,
    refuse_unsupported,
)
from gpuperf.measure.result_tensors import is_an_input
from gpuperf.measure.stopwatch import Stopwatch
from gpuperf.measure.telemetry import Meter
from gpuperf.measure.timers.timer import Call, CannotBlock
from gpuperf.measure.timing import Timing
from gpuperf.measure.validation import validated_cost
from gpuperf.measure.verify import BoundCall, Rotation, Verifier
from gpuperf.measure.warmup import warm_up
from gpuperf.model.contract import Contract, Counting, Fingerprint
from gpuperf.model.cost import Cost, Work
from gpuperf.model.record import Caveat, Memory, Record, Status
from gpuperf.model.rounding import rounded
from gpuperf.model.workload import Case, Implementation, Point, Workload

T = TypeVar("T")

READ_EVERY_S = 0.05  # between two readings of the telemetry, and between two reports of progress
MOST_COPIES, ROTATED_L2_SIZES = 64, 3  # copies of the inputs under `rotate`: how many, how large
EVICTED_L2_SIZES = 2  # copies that together are smaller may stay in the L2 between calls


@dataclass
class Bench:
    """Measures cases on one device.

    `report(phase, samples)` is called with the present phase and its number of samples so far,
    `on_timed` with the timed record before its hardware counters are read. Of the counters of
    kernels only those of the *quantity* are read, if there is one; *energy* measures joules. With
    *brief* a call is timed as the contract asks, and neither with a hot cache nor by the wall.
    """

    device: Device
    stopwatch: Stopwatch
    meter: Meter
    fingerprint: Fingerprint
    report: Callable[[str, int], None] = lambda phase, samples: None
    counting: Counting = "off"
    on_timed: Callable[[Record], None] = lambda record: None
    forecast: Forecast = field(default_factory=Forecast)
    quantity: str = ""
    energy: EnergyMeter | None = None
    brief: bool = False
    _partial: Record = field(init=False)  # the record so far, which is returned if the case fails
    _reported: float = field(default=0.0, init=False)
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
        """Return the record of one case; an exception that the case raises becomes its status.

        The device spins for *extra_s* seconds after each timed call, a slowdown of known size.
        Raises: RuntimeError when the device itself has failed, and nothing more can be measured.
        """
        hard = {**self.fingerprint.hard, "workload_version": workload.version}
        self._partial = record = Record(
            run=run,
            case=case,
            contract=contract,
            status="error",
            fingerprint=replace(self.fingerprint, hard=hard),
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            timer=self.stopwatch.timer.facts,
            seed=seed,
        )
        try:
            with restored_tf32():
                return self._measure(record, workload, extra_s)
        except NoTime as refusal:
            return self._failed(refusal.status, refusal.reason, refusal.hint)
        except (torch.OutOfMemoryError, MemoryError) as error:
            return self._failed("oom", describe_no_memory(error), SMALLER)
        except CannotBlock as error:
            hint = "choose --timer events, which measures launch cost too"
            return self._failed("cannot-block", str(error), hint)
        except CannotMeasure as error:
            status: Status = "skipped" if isinstance(error, Unsupported) else "error"
            return self._failed(status, str(error), error.hint)
        except Exception as error:
            self.device.synchronize()  # raises when the context is lost: then the worker must end
            if is_no_memory(error):
                return self._failed("oom", describe_no_memory(error), SMALLER)
            return self._failed("error", *describe_error(error, workload, case.implementation))
        finally:
            self.stopwatch.release()
            if self.device.torch.type == "cuda":
                torch.cuda.empty_cache()

    def _failed(self, status: Status, reason: str, hint: str) -> Record:
        return replace(self._partial, status=status, reason=reason, hint=hint)

    def can_begin(self, workload: Workload, case: Case, contract: Contract) -> bool:
        """Return whether the device supports *case* and has the memory for it; nothing is run."""
        record = Record(run="", case=case, contract=contract, status="error")
        try:
            self._planned(record, workload, CaseCounter(self.device, "off", lambda: None))
        except Exception:  # the error is reported when the case is measured
            return False
        return True

    def _measure(self, record: Record, workload: Workload, extra_s: float) -> Record:
        heard = partial(self.report, "counters", 0)
        counter = CaseCounter(self.device, self.counting, heard, self.quantity)
        implementation, record, memory = self._planned(record, workload, counter)
        case, contract, point = record.case, record.contract, Point(record.case.point)
        self.report("inputs", 0)
        make = bind_make(self.device.torch, record.seed, contract.data)
        inputs = workload.inputs(point, make)
        held = self._allocated()
        build_s, call = self._timed(lambda: self._build(implementation, record, inputs))
        first_call_s, output = self._timed(call)
        self._refuse_long(record, first_call_s)
        self.report("check", 0)
        verifier = self._verifier(workload, implementation, record)
        copies = [BoundCall(inputs, call)]
        check = self._verified(partial(verifier.before, copies[0], output))
        del output
        self.report("warm-up", 0)
        rotated: list[Caveat] = []
        built = call
        if contract.cache == "rotate":
            call, rotated = self._rotating(verifier, record, copies, memory)
        if contract.data == "zeros":
            refill(inputs, workload.inputs(point, make))  # the check was of other values
        if extra_s:
            call = self.device.delayed(call, extra_s)
        least = contract.warmup_calls - 2
        warm = warm_up(call, self.device.synchronize, first_call_s, least)
        self._refuse_long(record, warm.call_s, calls=1)
        memory = self._call_memory(memory, call, held, inputs)
        self.meter.summary()  # drops the readings from before the samples
        hooks = (self._watch, self._on_sample(verifier), verifier.spot_checks.wrap)
        whole = self.stopwatch.with_hooks(*hooks)
        stopwatch = replace(whole, wall=None) if self.brief else whole
        timing = stopwatch.take(call, contract, warm.call_s, self._wants_hot(memory))
        telemetry = self.meter.summary()
        refuse_fallback(implementation, timing)
        self.report("check", 0)
        self._verified(lambda: verifier.after(copies, stopwatch.repeat(call), warm.call_s))
        if contract.data == "zeros":
            refill(inputs, workload.inputs(point, make))
        timing = self._launched(call, timing)
        record = replace(
            with_times(record, timing, built),
            build_s=build_s,
            first_call_s=first_call_s,
            calls_until_steady=warm.calls,
            check=check,
            telemetry=telemetry,
            memory=memory,
        )
        if record.samples and record.cost:
            self.forecast.note(case, record.cost, min(record.samples.values_s))
        most_hz = self.device.facts.max_sm_clock_hz
        caveats = [*telemetry_caveats(telemetry), *rotated, *timing.caveats]
        caveats += sample_caveats(record, timing, workload.rounds_inputs_to(point), most_hz)
        caveats += self.device.cache_caveats(contract)
        return self._counted(replace(record, caveats=tuple(caveats)), call, timing, counter)

    def _counted(self, record: Record, call: Call, timing: Timing, counter: CaseCounter) -> Record:
        """Return *record* with the energy and the hardware counters of *call*, as asked for."""
        if self.energy is not None:
            self.on_timed(record)  # the load of half a minute may end this process
            record = self.energy.measured(record, call, self.device.synchronize)
        if self.counting != "off":
            self.on_timed(record)  # the counters may end this process
        return counter.count(record, call, timing)

    def _planned(
        self, record: Record, workload: Workload, counter: CaseCounter
    ) -> tuple[Implementation, Record, Memory]:
        """Return the implementation, the record with its cost, and the bytes that the case needs.

        Nothing is allocated yet. Raises: NoTime for a case that cannot be measured here.
        """
        point, name = Point(record.case.point), record.case.implementation
        refuse_alone(workload)
        by_name = {i.name: i for i in workload.implementations}
        if name not in by_name:
            raise UnknownName("implementation", name, by_name)
        implementation = by_name[name]
        refuse_unsupported(self.device, implementation, point)
        cost = validated_cost(workload.cost(point), Cost, "cost")
        model = implementation.work
        work = validated_cost(model(point), Work, "work") if model else None
        counter.open()
        self._partial = replace(record, cost=cost, work=work)
        memory = refuse_too_large(self.device, workload, point, cost)
        if self.device.torch.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device.torch)
        self._partial = replace(self._partial, memory=memory)
        self._refuse_long(self._partial)
        return implementation, self._partial, memory

    def _refuse_long(self, record: Record, call_s: float | None = None, calls: int = CALLS) -> None:
        """Raise NoTime for a case on a CPU if *calls* calls would take longer than its budget."""
        if self.device.facts.kind == "cpu" and record.cost is not None:
            refusal = self.forecast.refusal(
                record.case, record.cost, record.contract, call_s, calls
            )
            if refusal is not None:
                raise NoTime("skipped", *refusal)

    def _build(
        self, implementation: Implementation, record: Record, inputs: Mapping[str, Any]
    ) -> Call:
        case, contract = record.case, record.contract
        begin_build(case.id, *self.stopwatch.candidate_timers(contract))
        call = implementation.build(inputs, Point(case.point), case.options)
        if not callable(call):
            raise WorkloadError(
                f"build of {implementation.name} returned a {type(call).__name__}, not a function",
                "let it return a function without arguments: return lambda: …",
            )
        return call

    def _rotating(
        self, verifier: Verifier, record: Record, copies: list[BoundCall], memory: Memory
    ) -> tuple[Call, list[Caveat]]:
        """Return a call that runs *copies* in turn, after adding copies until they fill three L2s.

        Each copy has inputs of its own. The caveat says that the copies may still fit in the cache.
        """
        case, size = record.case, memory.inputs_bytes + memory.output_bytes
        l2 = self.device.facts.l2_bytes or 0
        wanted = min(MOST_COPIES, 1 + math.ceil(ROTATED_L2_SIZES * l2 / max(1, size)))
        room = int(gang.least(self.device.free_bytes() / 2 / max(1, memory.inputs_bytes)))
        for copy in range(1, max(2, min(wanted, room))):
            make = bind_make(self.device.torch, record.seed + 1 + copy, record.contract.data)
            inputs = verifier.workload.inputs(Point(case.point), make)
            copies.append(BoundCall(inputs, self._build(verifier.implementation, record, inputs)))
            self._verified(partial(verifier.before_copy, copies[-1], copy))
        together = len(copies) * size
        caveats = []
        if not l2 or together < EVICTED_L2_SIZES * l2:
            share = f"{together / l2:.2g} of the L2" if l2 else "a cache of unknown size"
            caveats.append(
                Caveat(
                    "cache-resident",
                    f"the {len(copies)} copies in rotation fill {share}: part of the data may "
                    "stay in cache between calls",
                    "--cache cold flushes the cache before each sample",
                )
            )
        rotation = Rotation([copy.call for copy in copies])
        verifier.spot_checks.copy = lambda: rotation.latest
        return rotation, caveats

    def _wants_hot(self, memory: Memory) -> bool:
        l2 = None if self.brief else self.device.facts.l2_bytes
        return l2 is not None and memory.inputs_bytes + memory.output_bytes <= l2

    def _timed(self, function: Callable[[], Any]) -> tuple[float, Any]:
        self.device.synchronize()
        start = time.perf_counter()
        result = function()
        self.device.synchronize()
        return gang.most(time.perf_counter() - start), result

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
        """Run *check*; a wrong result, or too little memory for the check, ends the case."""
        try:
            return check()
        except WrongResult as wrong:
            raise NoTime("wrong", f"the result {wrong}", wrong.hint) from None
        except (torch.OutOfMemoryError, MemoryError) as error:
            raise NoTime(
                "oom",
                f"the float64 reference does not fit in memory: {describe_no_memory(error)}",
                "the implementation itself ran; choose smaller sizes to check it",
            ) from None

    def _on_sample(self, verifier: Verifier) -> Callable[[int], None]:
        def on_sample(count: int) -> None:
            verifier.spot_checks.read()
            now = time.perf_counter()
            if now - self._reported > READ_EVERY_S:
                self._reported = now
                self.report("time", count)

        return on_sample

    def _watch(self) -> None:
        """Read the telemetry while a sample runs: between samples clock and power fall back."""
        now = time.perf_counter()
        if now - self._read > READ_EVERY_S:
            self._read = now
            self.meter.read()

    def _launched(self, call: Call, timing: Timing) -> Timing:
        if self.brief or not timing.launches:
            return timing

        def run() -> None:
            call()
            self.device.synchronize()

        try:
            kernels = with_launches(timing.kernels, timing.launches, launches_of(run))
        except Exception:
            self.device.synchronize()  # raises on a lost device; any other failure keeps the time
            return timing
        return replace(timing, kernels=kernels)

    def _allocated(self) -> int:
        cuda = self.device.torch.type == "cuda"
        return torch.cuda.memory_allocated(self.device.torch) if cuda else 0

    def _call_memory(
        self, memory: Memory, call: Call, held: int, inputs: Mapping[str, Any]
    ) -> Memory:
        """Return *memory* with the peak so far, and what one call allocates beyond *held* bytes."""
        if self.device.torch.type != "cuda":
            return memory
        device = self.device.torch
        peak = torch.cuda.max_memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        output = call()
        self.device.synchronize()
        most = torch.cuda.max_memory_allocated(device)
        # The allocator does not count what a CUDA graph keeps for its results.
        least = 0 if is_an_input(output, inputs) else memory.output_bytes
        return replace(memory, peak_bytes=max(peak, most), call_bytes=max(least, most - held))


def with_times(record: Record, timing: Timing, built: Call) -> Record:
    """Return *record* as `ok`, with *timing*, and what *built* says of itself."""
    timed = replace(
        record,
        chosen={**getattr(built, "chosen", {}), **timing.chosen},
        ranks=timing.ranks,
        readings=readings_of(built),
        status="ok",
        times=timing.times,
        primary=timing.primary,
        stop=timing.stop,
        timer=timing.facts,
        kernels=timing.kernels,
        capture_s=timing.capture_s,
    )
    return rounded(timed)
