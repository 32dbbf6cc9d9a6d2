"""Is what NCCL chose read from its own log, and unknown where the log does not say it?"""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuperf.measure.nccl_log import Choice, Log, choices

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
