"""Render the profiles of a run as a first look, as whole tables, as JSON or as CSV."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpuperf.model.record import Run
from gpuperf.profile.breakdown import Profile, profiles
from gpuperf.profile.brief import render_brief
from gpuperf.profile.findings import findings
from gpuperf.profile.ranks.table import together_tables
from gpuperf.profile.summary import title_of, totals_of
from gpuperf.profile.table import findings_table, kernels_table, operators_table, with_kernels
from gpuperf.profile.values import document_of
from gpuperf.show.data import to_json
from gpuperf.show.render import render
from gpuperf.show.screen import WIDE, Screen
from gpuperf.show.table import Table

MOST_ROWS = 5000  # rows of a table of a page


def render_profile(
    run: Run,
    format: str,
    by: str = "operators",
    screen: Screen = WIDE,
    columns: Sequence[str] = (),
    verbose: bool = False,
) -> str:
    """Render each region of *run* by its operators or its kernels.

    The format `table` is a first look at one region, with the chosen *columns*; if *verbose*, the
    whole tables of all regions.

    Raises: UsageError where no region has a time; UnknownName for a name that is no column.
    """
    regions = profiles(run)
    if format == "json":
        return to_json(document_of(run, regions), screen.ascii)
    if format == "table" and not verbose:
        return render_brief(run, regions, by, screen, columns)
    if format == "html":
        return render([table for profile in regions for table in _page(profile, run)], "html")
    tables = [table for profile in regions for table in _whole(profile, run, by)]
    return render(tables, format, screen)


def _whole(profile: Profile, run: Run, by: str) -> tuple[Table, ...]:
    roofless = not run.header.ceilings
    table = kernels_table(profile) if by == "kernels" else operators_table(profile, roofless)
    head = replace(table, title=title_of(profile, run), lead=totals_of(profile, run))
    advice = findings_table(findings(profile, run.header), profile)
    return head, *together_tables(profile, MOST_ROWS), advice


def _page(profile: Profile, run: Run) -> tuple[Table, ...]:
    """Return the tables of a page, which has room for every operator and every kernel."""
    operators = with_kernels(
        operators_table(profile, not run.header.ceilings, MOST_ROWS), profile, MOST_ROWS
    )
    return (
        replace(operators, title=title_of(profile, run), lead=totals_of(profile, run)),
        replace(findings_table(findings(profile, run.header), profile), title="What to do first"),
        replace(kernels_table(profile, MOST_ROWS), title="Kernels"),
        *(
            replace(table, title=title)
            for table, title in zip(
                together_tables(profile, MOST_ROWS), ("Ranks", "Collectives"), strict=False
            )
        ),
    )
