"""Load workloads and measure cases in a separate process, which `spawned` or `fork_server` begins.

The worker exchanges messages of `gpuperf.model.protocol` over two file descriptors of its own, is
killed when its parent ends, and exits when its device has failed: a lost CUDA context cannot be
restored.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

import torch

import gpuperf
from gpuperf.errors import CannotMeasure, GpuperfError, WorkloadError
from gpuperf.measure import gang
from gpuperf.measure.bench import Bench
from gpuperf.measure.callables import CallableBench
from gpuperf.measure.device import Device, open_device
from gpuperf.measure.doctor import examine
from gpuperf.measure.energy import EnergyMeter, open_energy_meter
from gpuperf.measure.fingerprint import fingerprint_of
from gpuperf.measure.forecast import Forecast
from gpuperf.measure.gang_stopwatch import open_gang_stopwatch
from gpuperf.measure.isolation import Isolation
from gpuperf.measure.nccl_log import read_tuning
from gpuperf.measure.nvbench import nvbench_means
from gpuperf.measure.pipe import Pipe, die_with_parent, end_child_on_return
from gpuperf.measure.prediction import predict
from gpuperf.measure.rebuilt import time_target
from gpuperf.measure.recording.work import recorder_name
from gpuperf.measure.registry import Loaded, find_builtin, load_all
from gpuperf.measure.stopwatch import Stopwatch, open_stopwatch
from gpuperf.measure.telemetry import Meter, open_meter
from gpuperf.measure.timer_comparison import open_timer_comparison
from gpuperf.measure.timers.window import open_window
from gpuperf.measure.topology import read_topology
from gpuperf.measure.warmup import warm_call
from gpuperf.model import protocol
from gpuperf.model.contract import Fingerprint, TimerName
from gpuperf.model.record import Started
from gpuperf.model.workload import Case, Workload

DEVICE_LOST = 70  # exit code after the device failed in a case


class DeviceLost(Exception):
    """The device failed and its CUDA context cannot be used again."""


class Worker:
    """Server of the supervisor's requests, one at a time."""

    def __init__(self, pipe: Pipe, started: Started) -> None:
        self._pipe, self._started = pipe, started
        self._device: Device | None = None
        self._meter: Meter | None = None
        self._isolation: Isolation | None = None
        self._fingerprint = Fingerprint()
        self._timers: set[TimerName] = set()
        self._forecast = Forecast()
        self._sources: dict[str, Loaded] = {}
        self._workloads: dict[tuple[str, str], Workload | None] = {}

    def send(self, message: protocol.FromWorker) -> None:
        """Send *message* to the supervisor; a forked child of the worker exits instead."""
        if not self._pipe.send(message):
            os._exit(0)

    def answer(self, request: protocol.ToWorker) -> None:
        """Serve *request*; an error becomes a message. Raises: DeviceLost."""
        try:
            if isinstance(request, protocol.Open):
                self._open(request)
            elif isinstance(request, protocol.Describe):
                self._describe(request.source)
            elif isinstance(request, protocol.Examine):
                device, meter, _ = self._opened()
                self.send(protocol.Examined(examine(device, meter)))
            elif isinstance(request, protocol.Survey):
                self.send(protocol.Surveyed(read_topology()))
            elif isinstance(request, protocol.Expect):
                self.send(self._expect(request))
            elif isinstance(request, protocol.Loaded):
                self.send(protocol.Modules(_modules(request.folders, request.packages)))
            elif isinstance(request, protocol.Nvbench):
                self.send(protocol.NvbenchTimes(tuple(self._nvbench(request))))
            elif isinstance(request, protocol.Runnable):
                self.send(protocol.RunnableCases(tuple(self._runnable(request))))
            elif isinstance(request, protocol.Measure):
                self.send(self._measure(request))
            elif isinstance(request, protocol.Time):
                self.send(self._time(request))
            else:
                raise CannotMeasure("this worker runs no programs")
        except WorkloadError as error:
            self.send(protocol.Failed("workload", str(error), error.hint))
        except CannotMeasure as error:
            self.send(protocol.Failed("cannot-measure", str(error), error.hint))
        except GpuperfError as error:
            self.send(protocol.Failed("usage", str(error), error.hint))

    def _open(self, request: protocol.Open) -> None:
        name = gang.device_name(request)
        gang.share_threads(request)
        device = open_device(name)
        gang.join(request, device.torch)
        # The load of a CPU is that of the other ranks.
        alone = device.torch.type == "cuda" or not gang.in_gang()
        self._meter = open_meter(device.torch) if alone else Meter()
        facts, self._fingerprint = gang.with_facts(*fingerprint_of(device, self._meter))
        self._device = replace(device, facts=facts)
        self._isolation = Isolation(device.torch)
        hosts = (request.host,) if request.host else ()
        tuning = read_tuning(gang.membership().log)
        self.send(
            protocol.Opened(facts, self._fingerprint, self._started, hosts=hosts, tuning=tuning)
        )

    def _opened(self) -> tuple[Device, Meter, Isolation]:
        if self._device is None or self._meter is None or self._isolation is None:
            raise CannotMeasure("no device was opened")
        return self._device, self._meter, self._isolation

    def _load(self, source: str) -> Loaded:
        if source not in self._sources:
            self._sources[source] = load_all(source)
        return self._sources[source]

    def _workload(self, case: Case) -> Workload | None:
        """Return the workload of *case*; of gpuperf's own files, only one is imported."""
        key = case.source, case.op
        if key not in self._workloads:
            builtin = find_builtin(*key)
            self._workloads[key] = builtin or self._load(case.source).workloads.get(case.op)
        return self._workloads[key]

    def _describe(self, source: str) -> None:
        loaded = self._load(source)
        workloads = tuple(w.describe(source) for w in loaded.workloads.values())
        experiments = tuple(e.describe(source) for e in loaded.experiments.values())
        self.send(protocol.Described(workloads, loaded.broken, experiments))

    def _expect(self, request: protocol.Expect) -> protocol.Predicted:
        experiments = self._load(request.source).experiments
        if request.experiment not in experiments:
            raise WorkloadError(f"{request.source} holds no experiment {request.experiment!r}")
        experiment = experiments[request.experiment]
        source = request.cases[0].source if request.cases else request.source
        workload = self._load(source).workloads.get(experiment.op)
        axes = workload.axes if workload else ()
        return protocol.Predicted(predict(experiment, request, axes))

    def _measure(self, request: protocol.Measure) -> protocol.Measured:
        device, meter, isolation = self._opened()
        workload = self._workload(request.case)
        if workload is None:
            raise WorkloadError(f"{request.case.source} holds no workload {request.case.op!r}")
        name = request.contract.timer
        fresh = name not in self._timers
        if fresh:
            self.send(protocol.Progress("timer"))
            self._timers.add(name)
        bench = Bench(
            device,
            self._stopwatch(request),
            meter,
            self._fingerprint,
            lambda phase, samples: self.send(protocol.Progress(phase, samples)),
            request.counting,
            lambda record: self.send(protocol.Timed(record)),
            self._forecast,
            request.quantity,
            self._energy_meter() if request.energy else None,
            request.brief,
        )
        isolation.begin(fresh_timer=fresh)
        try:
            record = bench.measure(
                workload, request.case, request.contract, request.run, request.seed, request.extra_s
            )
        except RuntimeError as error:
            raise DeviceLost(str(error).strip().splitlines()[0]) from error
        return protocol.Measured(record, isolation.end())

    def _energy_meter(self) -> EnergyMeter:
        device, meter, _ = self._opened()
        heard = partial(self.send, protocol.Progress("energy"))
        return open_energy_meter(meter, open_window(device.torch), heard)

    def _stopwatch(self, request: protocol.Measure) -> Stopwatch:
        device, _, _ = self._opened()
        if gang.in_gang():
            return open_gang_stopwatch(request.contract.timer, device)
        if request.every:
            return open_timer_comparison(device.torch)
        return open_stopwatch(request.contract.timer, device.torch)

    def _time(self, request: protocol.Time) -> protocol.Measured:
        device, meter, isolation = self._opened()
        self.send(protocol.Progress("timer"))
        bench = CallableBench(
            device,
            open_stopwatch(request.contract.timer, device.torch),
            meter,
            self._fingerprint,
            lambda phase, samples: self.send(protocol.Progress(phase, samples)),
            request.counting,
        )
        isolation.begin(fresh_timer=request.contract.timer not in self._timers)
        self._timers.add(request.contract.timer)
        record = time_target(bench, request)
        return protocol.Measured(record, isolation.end())

    def _runnable(self, request: protocol.Runnable) -> Iterator[int]:
        device, meter, _ = self._opened()
        bench = Bench(
            device, open_stopwatch(request.contract.timer, device.torch), meter, self._fingerprint
        )
        for index, case in enumerate(request.cases):
            workload = self._workload(case)
            if workload is not None and bench.can_begin(workload, case, request.contract):
                yield index

    def _nvbench(self, request: protocol.Nvbench) -> list[float | None]:
        """Return each case's mean seconds by nvbench; build all first. Raises: CannotMeasure."""
        device, _, _ = self._opened()
        calls = []
        for case in request.cases:
            workload = self._load(case.source).workloads[case.op]
            calls.append(warm_call(workload, case, device, request.seed, request.contract.data))
        device.synchronize()
        self.send(protocol.Progress("nvbench"))
        return nvbench_means(calls)


def _modules(folders: tuple[str, ...], packages: tuple[str, ...]) -> dict[str, str]:
    """Return the files of the imported modules, by module name, in *folders* or of *packages*.

    gpuperf's own modules are left out. Installed modules count if they belong to *packages*, or to
    a distribution that also installs a package in *folders*.
    """
    roots = [Path(folder).resolve() for folder in folders]
    ours = Path(gpuperf.__file__).resolve().parent
    wanted: dict[str, str] = {}
    others: dict[str, str] = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not Path(file).is_absolute():  # torch.ops is no file
            continue
        path = _resolved(file)
        installed = any(part in ("site-packages", "dist-packages") for part in path.parts)
        inside = not installed and any(path.is_relative_to(root) for root in roots)
        if not path.is_relative_to(ours):
            listed = inside or name.split(".")[0] in packages
            (wanted if listed else others)[name] = str(path)
    return wanted | _installed_with(wanted, others, roots)


@cache
def _real_folder(folder: str) -> str:
    return os.path.realpath(folder)


def _resolved(file: str) -> Path:
    """Resolve *file*, one of thousands in few folders, each of which is resolved once."""
    folder, name = os.path.split(file)
    path = Path(_real_folder(folder), name)
    return path.resolve() if path.is_symlink() else path


def _installed_with(
    wanted: dict[str, str], others: dict[str, str], roots: list[Path]
) -> dict[str, str]:
    """Return the modules in *others* from distributions that install a package in *roots* too.

    They are compiled modules of a library, which a git worktree of it lacks.
    """
    local = {
        name.split(".")[0]
        for name, file in wanted.items()
        if any(Path(file).is_relative_to(root) for root in roots)
    }
    together: set[str] = set()
    for distribution in distributions() if local else ():
        if distribution.name != "gpuperf" and local & (packages := _packages_of(distribution)):
            together |= packages
    return {name: file for name, file in others.items() if name.split(".")[0] in together}


def _packages_of(distribution: Distribution) -> set[str]:
    """Return the packages and modules that *distribution* installs.

    `importlib.metadata.packages_distributions` makes an object of each installed file, for a second
    where torch is installed.
    """
    listed = distribution.read_text("top_level.txt")
    if listed:
        return set(listed.split())
    lines = (distribution.read_text("RECORD") or "").splitlines()
    return {line.split(",", 1)[0].split("/", 1)[0].split(".", 1)[0] for line in lines}


def import_ahead() -> None:
    """Import what torch's profiler imports when it first starts, which takes 3 s on an H200 host.

    It makes no CUDA context.
    """
    if recorder_name() != "kineto":
        return
    with contextlib.suppress(ImportError):
        importlib.import_module("torch._inductor.config")


def main(arguments: list[str] | None = None) -> int:
    """Serve requests until the supervisor closes its end."""
    parser = argparse.ArgumentParser()
    for name in ("--requests", "--replies", "--parent"):
        parser.add_argument(name, type=int, required=True)
    for name in ("--ahead", "--forked"):
        parser.add_argument(name, action="store_true")
    options: Any = parser.parse_args(arguments)
    die_with_parent(options.parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the supervisor's to handle
    pipe = Pipe(options.requests, options.replies)
    end_child_on_return()
    if options.ahead:
        import_ahead()
    worker = Worker(pipe, "forked" if options.forked else "spawned")
    worker.send(protocol.Hello(protocol.PROTOCOL, os.getpid(), str(torch.__version__)))
    for request in pipe.requests():
        try:
            worker.answer(request)
        except DeviceLost as lost:
            worker.send(protocol.Failed("device-lost", str(lost)))
            os._exit(DEVICE_LOST)  # an orderly exit would wait for the dead context
    return 0
