"""Chrome traces as Kineto writes them: by hand with known answers, and large ones from a real one.

The form is that of `handleActivity` and `handleLink` in libkineto's output_json.cpp, the arguments
are those of CuptiActivity.cpp (kernels, copies, memsets, calls of the runtime) and of
DeviceProperties.cpp.
Times are nanoseconds here, and microseconds with three decimals in the file.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

PID = 4242
BASE = 4_467_954_000_000_000  # nanoseconds that Kineto counts from the quarter's beginning
H200 = {
    "id": 0,
    "name": "NVIDIA H200",
    "totalGlobalMem": 150109880320,
    "computeMajor": 9,
    "computeMinor": 0,
    "maxThreadsPerBlock": 1024,
    "maxThreadsPerMultiprocessor": 2048,
    "regsPerBlock": 65536,
    "warpSize": 32,
    "sharedMemPerBlock": 49152,
    "numSms": 132,
    "regsPerMultiprocessor": 65536,
    "sharedMemPerBlockOptin": 232448,
    "sharedMemPerMultiprocessor": 233472,
}

HEAD = """ {
    "schemaVersion": 1,
    "deviceProperties": %s,
    "trace_id": "B33C1C5E598246B29382B93E2A4D9CFC",
    "record_shapes": 1,
    "displayTimeUnit": "ms",
    "baseTimeNanoseconds": 1790857026000000000,
    "traceEvents": ["""
TAIL = """
  ],"traceName": "trace.json" }"""


def moment(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03}"


def event(cat: str, name: str, start: int, end: int, pid: object, tid: object, args: str) -> str:
    return f"""
  {{
    "ph": "X",
    "cat": "{cat}",
    "name": {json.dumps(name)},
    "pid": {json.dumps(pid)},
    "tid": {json.dumps(tid)},
    "ts": {moment(start)},
    "dur": {moment(end - start)}
    ,
    "args": {{
      {args}
    }}
  }}"""


def flow(phase: str, number: int, at: int, pid: int, tid: int) -> str:
    end = ', "bp": "e"' if phase == "f" else ""
    return f"""
  {{
    "ph": "{phase}", "id": {number}, "pid": {pid}, "tid": {tid}, "ts": {moment(at)},
    "cat": "ac2g", "name": "ac2g"{end}
  }}"""


def members(**args: object) -> str:
    """`registers_per_thread=3` as `"registers per thread": 3`."""
    return ", ".join(f'"{key.replace("_", " ")}": {json.dumps(v)}' for key, v in args.items())


def comms(name: str, given: int, taken: int, dtype: str = "BFloat16") -> dict[str, object]:
    """What torch records of a collective of two ranks, as Kineto writes it to the kernel."""
    return {
        "Collective_name": name,
        "In_msg_nelems": given,
        "Out_msg_nelems": taken,
        "Group_size": 2,
        "dtype": dtype,
        "Process_Group_Name": "0",
        "Process_Group_Ranks": "[0, 1]",
    }


class Trace:
    """A trace under construction; each method adds events, and times are from its start."""

    def __init__(self, base: int = BASE, device: dict[str, object] | None = H200) -> None:
        self.base = base
        self.devices = [device] if device else []
        self.events: list[str] = []
        self.pid = PID
        self.number = 0  # of operators
        self.correlation = 1000

    def add(
        self, cat: str, name: str, start: int, end: int, pid: object, tid: object, args: str
    ) -> None:
        base = self.base
        self.events.append(event(cat, name, base + start, base + end, pid, tid, args))

    def op(self, name: str, start: int, end: int, thread: int = 1, **args: object) -> int:
        """An operator; returns its number, `External id`."""
        self.number += 1
        given = members(**{"External id": self.number, "Ev Idx": self.number}, **args)
        self.add("cpu_op", name, start, end, self.pid, thread, given)
        return self.number

    def mark(self, name: str, start: int, end: int, thread: int = 1) -> None:
        self.number += 1
        self.add(
            "user_annotation", name, start, end, self.pid, thread, members(External_id=self.number)
        )

    def call(
        self,
        name: str,
        start: int,
        end: int,
        thread: int = 1,
        cat: str = "cuda_runtime",
        **args: object,
    ) -> int:
        """A call of the runtime; returns its correlation."""
        self.correlation += 1
        given = members(**args, cbid=211, correlation=self.correlation)
        self.add(cat, name, start, end, self.pid, thread, given)
        return self.correlation

    def kernel(
        self,
        name: str,
        start: int,
        end: int,
        correlation: int = 0,
        device: int = 0,
        stream: int = 7,
        **args: object,
    ) -> None:
        given = {"grid": [32, 1, 2], "block": [128, 1, 1]} | args
        text = members(
            queued=0,
            device=device,
            context=1,
            stream=stream,
            correlation=correlation,
            registers_per_thread=240,
            shared_memory=98304,
            blocks_per_SM=0.484848,
            warps_per_SM=1.939394,
            **given,
        )
        self.add(
            "kernel", name, start, end, device, stream, f'{text}, "est. achieved occupancy %": 3'
        )

    def launch(
        self,
        name: str,
        at: int,
        start: int,
        end: int,
        thread: int = 1,
        api: str = "cudaLaunchKernel",
        **args: object,
    ) -> None:
        """A kernel, and the call of 5 ns that launched it."""
        cat = (
            "cuda_driver" if api.startswith("cu") and not api.startswith("cuda") else "cuda_runtime"
        )
        number = self.call(api, at, at + 5, thread, cat)
        self.events.append(flow("s", number, self.base + at, self.pid, thread))
        self.kernel(name, start, end, number, **args)
        self.events.append(flow("f", number, self.base + start, 0, 7))

    def nccl(self, name: str, at: int, start: int, end: int, **args: object) -> None:
        """A kernel of NCCL on a stream of its own, in microseconds."""
        self.launch(name, at * 1000, start * 1000, end * 1000, stream=20, **args)

    def copy(
        self,
        way: str,
        start: int,
        end: int,
        nbytes: int,
        correlation: int = 0,
        cat: str = "gpu_memcpy",
    ) -> None:
        name = f"Memset ({way})" if cat == "gpu_memset" else f"Memcpy {way}"
        text = members(device=0, context=1, stream=7, correlation=correlation, bytes=nbytes)
        self.add(cat, name, start, end, 0, 7, f'{text}, "memory bandwidth (GB/s)": "N/A"')

    def text(self) -> str:
        return HEAD % json.dumps(self.devices) + ",".join(self.events) + TAIL

    def write(self, path: Path) -> Path:
        path.write_text(self.text(), encoding="utf-8")
        return path


LAUNCHES = ("aten::mm", "aten::addmm", "aten::mul_", "aten::add_", "aten::addcdiv_", "aten::sqrt")
VARYING = re.compile(r'"(ts|correlation|External id)": (\d+)(?:\.(\d{3}))?')


def with_kernels(events: list[dict[str, object]]) -> Trace:
    """The real *events* of a CPU, those of `LAUNCHES` with a kernel each."""
    trace = Trace(base=0)
    free = 0
    for one in events:
        if one.get("ph") != "X":
            continue
        start, length = (round(float(str(one[key])) * 1000) for key in ("ts", "dur"))
        args = json.dumps(one.get("args", {}))[1:-1]
        trace.pid = one["pid"]
        cat, name = str(one["cat"]), str(one["name"])
        trace.add(cat, name, start, start + length, one["pid"], one["tid"], args)
        if name in LAUNCHES:
            begin = max(free, start + length + 3000)
            free = begin + 2 * length
            kernel = f"void at::native::vectorized_elementwise_kernel<4, {name[6:]}>(int, float)"
            trace.launch(kernel, start + length // 2, begin, free, int(str(one["tid"])))
    return trace


def write_large(path: Path, events: list[dict[str, object]], size: int) -> int:
    """A trace of at least *size* bytes: *events* with kernels, again and again, later each time.
    Returns how often."""
    trace = with_kernels(events)
    body = ",".join(trace.events)
    times = [round(float(str(one["ts"])) * 1000) for one in events if one.get("ph") == "X"]
    period = max(times) - min(times) + 10_000_000
    rounds = 0
    with path.open("w", encoding="utf-8") as file:
        file.write(HEAD % json.dumps([H200]))
        while file.tell() < size:
            file.write("," if rounds else "")
            file.write(_later(body, rounds, rounds * period))
            rounds += 1
        file.write(TAIL)
    return rounds


def _later(body: str, round_: int, shift: int) -> str:
    def moved(match: re.Match[str]) -> str:
        if match[1] == "ts":
            return f'"ts": {moment(int(match[2] + match[3]) + shift)}'
        return f'"{match[1]}": {int(match[2]) + round_ * 100_000}'

    return VARYING.sub(moved, body)
