"""Is what NCCL chose read from its own log, and unknown where the log does not say it?"""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuperf.measure.nccl_log import Choice, Log, choices, read_tuning, tuned_times

HOST = "node-1:4242:4260 [0] NCCL INFO "
NOISE = [
    "NCCL version 2.29.2+cuda13.0",
    HOST + "Bootstrap: Using eth0:10.0.0.7<0>",
    HOST + "   Algorithm   |                            Tree                  |",
    HOST + "Channel 00/24 : 0 1",
    HOST + "Connected all rings, use ring PXN 0 GDR 1",
    "",
]


@pytest.mark.parametrize(
    ("line", "choice"),
    [
        (
            "AllReduce: 8388608 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..23}",
            Choice("AllReduce", 8388608, "RING", "SIMPLE", 24),
        ),
        (
            "AllGather: 512 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}",
            Choice("AllGather", 512, "RING", "LL", 1),
        ),
        (
            "ReduceScatter: 4 Bytes -> Algo NVLS proto SIMPLE channel{Lo..Hi}={4..7}",
            Choice("ReduceScatter", 4, "NVLS", "SIMPLE", 4),
        ),
        ("1024 Bytes -> Algo 0 proto 1 time 13.2", Choice("", 1024, "TREE", "LL128")),
        ("1024 Bytes -> Algo 9 proto 7 time 13.2", Choice("", 1024, "9", "7")),
        ("Broadcast: 64 Bytes -> Algo NEW proto LL", Choice("Broadcast", 64, "NEW", "LL")),
    ],
)
def test_a_line_of_each_version_is_read(line: str, choice: Choice) -> None:
    assert [*choices("\n".join([*NOISE, HOST + line, *NOISE]))] == [choice]


def test_unknown_channels_are_left_out() -> None:
    assert Choice("", 1, "RING", "LL").values == {"algorithm": "RING", "protocol": "LL"}
    assert Choice("", 1, "RING", "LL", 2).values["channels"] == 2


def test_only_the_calls_since_the_log_was_opened_count(tmp_path: Path) -> None:
    path = tmp_path / "nccl.0"
    path.write_text(HOST + "1 Bytes -> Algo TREE proto LL\n")
    log = Log(path)
    assert log.chosen() == {}
    with path.open("a") as file:
        file.write(HOST + "AllReduce: 4 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..1}\n")
        file.write(HOST + "AllReduce: 8 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..3}\n")
    assert log.chosen() == {"algorithm": "RING", "protocol": "LL", "channels": 4}


def test_a_log_that_does_not_exist_says_nothing(tmp_path: Path) -> None:
    assert Log(None).chosen() == {}
    assert Log(tmp_path / "absent").chosen() == {}


def test_noise_chooses_nothing() -> None:
    assert [*choices("\n".join(NOISE))] == []


# The table as `ncclTopoTuneModel` of NCCL 2.18 to 2.30 prints it (graph/tuning.cc), with its widths
# and with invented figures.
COLLECTIVES = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")
ALGORITHMS = ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
PROTOCOLS = ("LL", "LL128", "Simple")
Figures = dict[tuple[str, str, str], tuple[float, float]]
TABLE: Figures = {
    ("AllReduce", "Ring", "LL"): (7.8, 141.2),
    ("AllReduce", "Ring", "LL128"): (17.8, 0.0),
    ("AllReduce", "Ring", "Simple"): (15.2, 1370.8),
    ("AllReduce", "NVLSTree", "Simple"): (20.1, 400.0),
    ("AllGather", "PAT", "Simple"): (17.6, 3.6),
    ("Broadcast", "Tree", "LL"): (123456.7, 0.1),
}


def printed(figures: Figures, host: str = HOST) -> list[str]:
    """The lines of the table; NCCL names nine protocols in each block, of whatever width."""
    lines = []
    for block in (ALGORITHMS[i : i + 3] for i in range(0, len(ALGORITHMS), 3)):
        names = "".join(f" {'':>14}   {name:>14}   {'':>14} |" for name in block)
        lines.append(f"{host}  Algorithm   |{names}")
        protocols = "".join(f" {name:>14} |" for name in PROTOCOLS * 3)
        lines.append(f"{host}  Protocol    |{protocols}")
        threads = "".join(f" {512:>14} |" for _ in block for _ in PROTOCOLS)
        lines.append(f"{host} Max NThreads |{threads}")
        for collective in COLLECTIVES:
            cells = ""
            for key in ((collective, a, p) for a in block for p in PROTOCOLS):
                latency, bandwidth = figures.get(key, (0.0, 0.0))
                cells += f"{latency:8.1f}/{bandwidth:6.1f} |"
            lines.append(f"{host}{collective:>13} |{cells}")
    return lines


def test_the_table_of_latencies_and_bandwidths_is_read() -> None:
    lines = printed(TABLE)
    text = "\n".join([*NOISE, *lines, HOST + "AllReduce: 4 Bytes -> Algo RING proto LL", *NOISE])
    times = {(t.collective, t.algorithm, t.protocol): t for t in tuned_times(text)}
    assert set(times) == {
        ("AllReduce", "RING", "LL"),
        ("AllReduce", "RING", "SIMPLE"),
        ("AllReduce", "NVLS_TREE", "SIMPLE"),
        ("AllGather", "PAT", "SIMPLE"),
        ("Broadcast", "TREE", "LL"),
    }, "what is off has a bandwidth of 0"
    ring = times["AllReduce", "RING", "LL"]
    assert (ring.latency_s, ring.bytes_per_s) == pytest.approx((7.8e-6, 141.2e9))
    assert ring.seconds(141_200) == pytest.approx(8.8e-6)
    assert times["Broadcast", "TREE", "LL"].latency_s == pytest.approx(0.1234567)
    assert [*choices(text)] == [Choice("AllReduce", 4, "RING", "LL")]


def test_the_table_of_older_versions_is_read() -> None:
    """One line named all columns, until NCCL 2.17."""
    columns = [(a, p) for a in ("Tree", "Ring", "CollNetDirect") for p in PROTOCOLS]
    head = "Latency/AlgBw |" + "".join(f" {a:>7}/{p:>6} |" for a, p in columns)
    row = f"{'AllReduce':>13} |" + "".join(f"{i + 0.5:8.1f}/{i:6.1f} |" for i in range(9))
    times = tuned_times(f"{HOST}{head}\n{HOST}{row}\n")
    assert len(times) == 8
    assert (times[3].algorithm, times[3].protocol) == ("RING", "LL128")
    assert (times[3].latency_s, times[3].bytes_per_s) == pytest.approx((4.5e-6, 4e9))
    assert times[-1].algorithm == "COLLNET_DIRECT"


def test_the_table_of_the_latest_communicator_counts() -> None:
    changed = {("AllReduce", "Ring", "LL"): (9.9, 50.0)}
    (time,) = tuned_times("\n".join([*printed(TABLE), *printed(changed)]))
    assert (time.latency_s, time.bytes_per_s) == pytest.approx((9.9e-6, 50e9))


@pytest.mark.parametrize(
    "damaged",
    [
        ["AllReduce |     7.8/ 141.2 |"],  # no header
        ["  Algorithm   | Tree | Ring |", "    AllReduce |     7.8/ 141.2 |"],
        ["  Algorithm   | Ring |", "    AllReduce |     7.8/ 141.2 |     7.8/ 1"],  # cut
        ["  Algorithm   | Ring |", "    AllReduce |" + "     nan/   inf |" * 3],
        ["  Algorithm   | Ring |", "    AllReduce |" + f" 1.0/{'9' * 400}.0 |" * 3],
        ["  Algorithm   | Ring |", "    SendRecv |" + "     7.8/ 141.2 |" * 3],
        ["|" * 1000, "  Algorithm   |", "    AllReduce |"],
    ],
)
def test_a_table_that_does_not_fit_its_header_says_nothing(damaged: list[str]) -> None:
    assert tuned_times("\n".join(HOST + line for line in damaged)) == ()


def test_a_log_without_a_table_or_a_file_has_no_tuning(tmp_path: Path) -> None:
    assert read_tuning(None) == read_tuning(tmp_path / "absent") == ()
    path = tmp_path / "nccl.0"
    path.write_bytes(b"\xff\xfe" + "\n".join(printed(TABLE)).encode())
    assert len(read_tuning(path)) == 5
