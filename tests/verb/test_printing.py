"""Is a run printed as asked, and refused what its table cannot do?"""

from __future__ import annotations

import pytest
from measured import run_file

from gpuperf.errors import UsageError
from gpuperf.run.store import read_run
from gpuperf.verb.options import Format
from gpuperf.verb.printing import print_run


@pytest.mark.parametrize("name", ["h200-waves-cublas", "h200-alignment"])
def test_columns_are_refused_where_a_table_has_no_choice(name: str) -> None:
    with pytest.raises(UsageError, match="--columns cannot be given for a run of"):
        print_run(read_run(run_file(name)), Format.TABLE, columns="time")


def test_columns_choose_those_of_a_roofline(capsys: pytest.CaptureFixture[str]) -> None:
    print_run(read_run(run_file("h200-matmul-bf16")), Format.TABLE, columns="time,MFU")
    head = capsys.readouterr().out.splitlines()[2]
    assert "time" in head.split()
    assert "AI" not in head.split()
