"""Assemble the `Run` of a profiled program, its header and the records of its regions."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpuperf.errors import UsageError
from gpuperf.model.contract import Contract
from gpuperf.model.program import FORWARD, PROMPT, WHOLE, PassName, PassResult, Prompts
from gpuperf.model.protocol import Opened
from gpuperf.model.record import Header, Record, Run
from gpuperf.model.timeline import Timeline
from gpuperf.peaks.find import find_peaks
from gpuperf.profile.passes import RegionPasses
from gpuperf.profile.program import ProgramRun
from gpuperf.profile.records import region_records
from gpuperf.profile.trace.kineto import read_trace
from gpuperf.profile.trace.steps import region_name, steps_of
from gpuperf.run.ceilings import kept_ceilings
from gpuperf.run.session import make_header

TIMED_PROMPT = re.compile(rf"{PROMPT}([0-9]+) × ([0-9]+) tokens")


@dataclass(frozen=True)
class Origin:
    """The request that every record of a profile repeats.

    `run` is the run's id, `script` the file name, `warmup` the steps to skip in each region,
    `steps` those of the plain pass, and `items` the images, tokens or the like of a step, if given.
    The program is the process `rank` of `world`.
    """

    run: str
    script: str
    warmup: int
    steps: int
    items: float | None
    rank: int = 0
    world: int = 1


def assemble_run(origin: Origin, program: ProgramRun, traced: bool) -> Run:
    """Return the run of *program*, with the kernels of its traces if *traced*.

    A pass whose trace cannot be read is missing from the run; the other passes stay.
    """
    assert program.opened is not None
    contract = _contract(program.opened, origin)
    records: list[Record] = []
    prompts = _prompts(program.passed)
    regions = dict.fromkeys(result.region for result in program.passed)
    for region in (name for name in regions if name not in prompts):
        results = [result for result in program.passed if result.region == region]
        passes = _region_passes(origin, contract, program, region, results, traced)
        timed = tuple(each for each in prompts.values() if each.seconds)
        records += region_records(replace(passes, prompts=timed))
    devices = (program.opened.device.index,)
    place = {"rank": origin.rank, "world": origin.world, "devices": devices}
    header = _header(origin.run, program.opened, contract, records)
    return Run(
        replace(header, world=origin.world, devices=devices),
        tuple(replace(record, **place) for record in records),  # type: ignore[arg-type]
    )


def _prompts(passed: Sequence[PassResult]) -> Mapping[str, Prompts]:
    """Return the timed prompts of each length, by region; a program with marks has none."""
    prompts = {}
    for result in passed:
        named = TIMED_PROMPT.fullmatch(result.region)
        if named and FORWARD in {each.region for each in passed}:
            prompts[result.region] = Prompts(int(named[1]), int(named[2]), result.steps_s)
    return prompts


def _region_passes(
    origin: Origin,
    contract: Contract,
    program: ProgramRun,
    region: str,
    results: list[PassResult],
    traced: bool,
) -> RegionPasses:
    assert program.opened is not None
    device = program.opened.device
    timelines: dict[PassName, Timeline] = {}
    if traced:
        timelines, results = _read_traces(results)
    passes = RegionPasses(
        origin.run,
        region,
        origin.script,
        contract,
        program.opened.fingerprint,
        tuple(results),
        timelines.get("trace"),
        total=program.steps.get(region, 0),
        exit_code=program.exit_code,
        error=program.error,
        items=origin.items,
        cuda=device.kind != "cpu",
        light=timelines.get("light"),
        device=None if device.kind == "cpu" else device.index,
    )
    return _with_steps(passes) if region == WHOLE else passes


def _with_steps(passes: RegionPasses) -> RegionPasses:
    """Return *passes* of a program that marks no steps, with the steps detected in its trace."""
    if passes.timeline is None:
        return passes
    name, windows = steps_of(passes.timeline, by_marks=False)
    name = region_name(name, passes.timeline, any(result.cut for result in passes.passed))
    results = (replace(r, region=name, steps=len(windows)) for r in passes.passed)
    return replace(passes, region=name, windows=tuple(windows), passed=tuple(results))


def _read_traces(
    results: Sequence[PassResult],
) -> tuple[dict[PassName, Timeline], list[PassResult]]:
    """Return the timelines by pass, and *results* with 0 steps for an unreadable trace."""
    timelines: dict[PassName, Timeline] = {}
    readable = []
    for result in results:
        if result.trace:
            try:
                timelines[result.name] = read_trace(Path(result.trace))
            except UsageError as error:
                result = replace(result, steps=0, reason=f"its trace cannot be read: {error}")
        readable.append(result)
    return timelines, readable


def _contract(opened: Opened, origin: Origin) -> Contract:
    """Return the contract of the plain pass: CUDA events on a GPU, the host's clock on a CPU."""
    return Contract(
        "wall" if opened.device.kind == "cpu" else "events",
        cache="hot",
        regime="sustained",
        gap_s=0.0,
        data="own",
        warmup_calls=origin.warmup,
        min_samples=origin.steps,
        max_samples=origin.steps,
        settle_s=0.0,
    )


def _header(run: str, opened: Opened, contract: Contract, records: Sequence[Record]) -> Header:
    peaks, reason = find_peaks(opened.device)
    cases = [record.case for record in records if record.kind == "region"]
    command, ceilings = ["gpuperf", *sys.argv[1:]], kept_ceilings(opened)
    header = make_header(run, command, cases, [contract], opened, peaks, reason, ceilings)
    return replace(header, study="profile")
