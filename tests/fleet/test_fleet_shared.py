"""Does the judge say that another program ran on a slow device, and only where it explains that?"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from synthetic_fleet import NAMES, collected, head, rows

from gpuperf.fleet.rule import FleetRule
from gpuperf.fleet.shard import encode_shard
from gpuperf.fleet.study import judge_fleet


@pytest.mark.parametrize(
    ("busy", "hosts", "reason"),
    [
        (("matmul/torch",), 1, "another program ran on it"),
        (("h2d/torch", "copy/torch"), 1, ""),
        ((), 1, ""),
        (("matmul/torch",), len(NAMES), ""),
    ],
    ids=["in the slow test", "in other tests", "nowhere", "on all devices"],
)
def test_another_program_is_the_reason_of_a_slow_test_in_which_it_ran(
    busy: Sequence[str], hosts: int, reason: str
) -> None:
    """It ran on the first of the *hosts*, which is slow, and on so many in all."""
    texts = []
    for number, name in enumerate(NAMES):
        plain = rows(of := head(name), {} if number else {"matmul/torch": 0.2})
        tests = busy if number < hosts else ()
        texts.append(
            encode_shard(
                of,
                [
                    msgspec.structs.replace(row, shared=row.case.partition("[")[0] in tests)
                    for row in plain
                ],
            )
        )
    (bad,) = judge_fleet(collected(texts), FleetRule()).bad
    assert (bad.unit.host, bad.test, bad.reason) == (NAMES[0], "matmul/torch", reason)
