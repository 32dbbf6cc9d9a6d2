"""Measure in tests: the fixture `gpuperf`, budgets by a marker, and stored runs as baselines.

pytest imports this module in each project of an environment that has gpuperf, so it imports nothing
slow: `session` comes with the first measurement, or with an option that needs it.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from gpuperf.pytest_plugin.session import InTest, Session

MARKER = (
    "gpuperf(max_us, min_fraction_of_roof): the longest time in µs, and the least share of the "
    "roof, of what the test measures with the fixture gpuperf"
)
NO_TIMING = (
    "the fixture gpuperf does not measure under pytest-xdist, since tests of other processes would "
    "disturb the times\nhint: run these tests with -n 0 --gpuperf-only, and the others with "
    "--gpuperf-skip"
)
SESSION: pytest.StashKey[Session] = pytest.StashKey()
IN_TEST: pytest.StashKey[InTest] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options whose names begin with --gpuperf."""
    group = parser.getgroup("gpuperf", "times of GPU kernels")
    group.addoption(
        "--gpuperf-save",
        metavar="RUN",
        help="Write all measurements to the new run file RUN, which `gpuperf show` prints.",
    )
    group.addoption(
        "--gpuperf-compare",
        metavar="BASELINE",
        help="Fail if a measurement is slower than in the run file BASELINE.",
    )
    group.addoption(
        "--gpuperf-passes",
        metavar="N",
        type=int,
        default=1,
        help="Measure in N processes: a comparison needs 6 of the baseline. Default: 1.",
    )
    group.addoption(
        "--gpuperf-only", action="store_true", help="Run only tests with the fixture gpuperf."
    )
    group.addoption(
        "--gpuperf-skip", action="store_true", help="Skip all tests with the fixture gpuperf."
    )
    group.addoption("--gpuperf-pass", metavar="PLAN", help=argparse.SUPPRESS)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker, and read what the options name. Raises: pytest.UsageError."""
    config.addinivalue_line("markers", MARKER)
    given = config.option
    if given.gpuperf_only and given.gpuperf_skip:
        raise pytest.UsageError("--gpuperf-only and --gpuperf-skip exclude each other: give one")
    asked = any((given.gpuperf_save, given.gpuperf_compare, given.gpuperf_passes != 1))
    if asked and not given.collectonly:  # a collection measures nothing, and imports no torch
        session_of(config)


def session_of(config: pytest.Config) -> Session:
    """Return the session of *config*, made on first use. Raises: pytest.UsageError."""
    if SESSION not in config.stash:
        from gpuperf.errors import GpuperfError
        from gpuperf.pytest_plugin.session import Session

        try:
            config.stash[SESSION] = Session(config.option, config.invocation_params)
        except GpuperfError as error:
            raise pytest.UsageError(f"{error}\nhint: {error.hint}") from None
    return config.stash[SESSION]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Select tests with the fixture, skip them, or keep those that an earlier process measured."""
    given = config.option
    if given.gpuperf_skip:
        for item in filter(_measures, items):
            item.add_marker(pytest.mark.skip(reason="--gpuperf-skip"))
    chosen = [item for item in items if _measures(item)] if given.gpuperf_only else list(items)
    if given.gpuperf_pass:
        chosen = [item for item in chosen if session_of(config).measures_again(item.nodeid)]
    kept = set(chosen)
    if left := [item for item in items if item not in kept]:
        config.hook.pytest_deselected(items=left)
        items[:] = chosen


def _measures(item: pytest.Item) -> bool:
    return "gpuperf" in getattr(item, "fixturenames", ())


@pytest.fixture(name="gpuperf")
def gpuperf_fixture(request: pytest.FixtureRequest) -> InTest:
    """Measure a callable as `gpuperf.measure` does: `result = gpuperf(lambda: f(x), cost=…)`.

    The measurement has the name of the test, and the budgets of its marker `gpuperf`.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        pytest.fail(NO_TIMING, pytrace=False)
    from gpuperf.errors import GpuperfError

    session, item, slip = session_of(request.config), request.node, ""
    try:
        item.stash[IN_TEST] = session.begin(item.nodeid, item.iter_markers("gpuperf"))
    except GpuperfError as error:
        slip = f"{error}\nhint: {error.hint}"
    if slip:
        pytest.fail(slip, pytrace=False)
    return item.stash[IN_TEST]  # type: ignore[no-any-return]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test whose body passed, if a measurement is over its budget or has no time."""
    result = yield
    in_test = item.stash.get(IN_TEST, None)
    failures = in_test.failures() if in_test else []
    if item.get_closest_marker("gpuperf") and (in_test is None or not in_test.taken):
        failures = [
            "the test has the marker gpuperf and measures nothing\n"
            "hint: measure with the fixture, gpuperf(lambda: f(x)), or remove the marker"
        ]
    if failures:
        pytest.fail("\n".join(failures), pytrace=False)
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Complete the run file, and fail the session if it is slower than its baseline."""
    ours = session.config.stash.get(SESSION, None)
    if ours is None or session.config.option.collectonly:
        return
    ours.finish(again=exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED))
    if ours.problem and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the table of all measurements, and in red what a comparison has against them."""
    ours = config.stash.get(SESSION, None)
    if ours is None or not (ours.taken or ours.problem):
        return
    from gpuperf.pytest_plugin.table import render

    terminalreporter.section("gpuperf")
    if ours.taken:
        color = terminalreporter.hasmarkup
        terminalreporter.write(render(ours, terminalreporter._tw.fullwidth, color))
    if ours.problem:
        terminalreporter.write_line(ours.problem, red=True, bold=True)
