"""Is a run printed as asked, and refused what its table cannot do?"""

from __future__ import annotations

import pytest
from measured import run_file

from gpuperf.errors import UnknownName, UsageError
from gpuperf.model.workload import Axis, Description
from gpuperf.run.store import read_run
from gpuperf.verb.options import Format
from gpuperf.verb.parse import axis_options
from gpuperf.verb.printing import print_run


@pytest.mark.parametrize("name", ["h200-waves-cublas", "h200-alignment"])
def test_columns_are_refused_where_a_table_has_no_choice(name: str) -> None:
    with pytest.raises(UsageError, match="--columns cannot be given for a run of"):
        print_run(read_run(run_file(name)), Format.TABLE, columns="time")


def test_columns_of_other_formats_are_all_and_that_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_run(read_run(run_file("h200-matmul-bf16")), Format.CSV, columns="time")
    printed = capsys.readouterr()
    assert printed.err == "--columns chooses those of a table: --format csv has all\n"
    assert "mfu_data_sheet" in printed.out


def test_columns_choose_those_of_a_roofline(capsys: pytest.CaptureFixture[str]) -> None:
    print_run(read_run(run_file("h200-matmul-bf16")), Format.TABLE, columns="time,MFU")
    head = capsys.readouterr().out.splitlines()[2]
    assert "time" in head.split()
    assert "AI" not in head.split()


def test_an_axis_is_not_guessed_from_the_hyphens_of_an_option() -> None:
    """`--html` and `--tile` have four characters in common, two of which are hyphens."""
    description = Description("matmul", "", "", (Axis("tile", 8),), (), 1, "")
    with pytest.raises(UnknownName, match=r"^no option '--html'\n") as caught:
        axis_options(["--html", "a.html"], description)
    assert caught.value.hint == "gpuperf show RUN --html FILE writes a page"
    assert str(UnknownName("option", "--html", ["--tile"])) == "no option '--html'"
    assert str(UnknownName("option", "--tle", ["--tile"])).endswith("did you mean '--tile'?")
