"""Pages in a real browser: nothing is loaded, and every control does what it says.

Needs playwright and Chromium, which a developer installs (docs/guides/share-a-page.md): tests are
skipped without them. The accessibility rules of axe need the package axe-playwright-python too.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from measured import MEASURED, run_file, text_of
from pages import poisoned

from gpuperf.roofline.rows import entries_of
from gpuperf.run.store import read_run
from gpuperf.show import html

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
pytestmark = pytest.mark.skipif(
    not CHROMIUM or importlib.util.find_spec("playwright") is None,
    reason="needs playwright and Chromium",
)
ATTENTION, PROFILED = "h200-compare-attention", "h200-profile-sdpa"
PLANE, LINKS = "h200-waves-plane", "h100x2-links"
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the pages of three runs, and of a large one."""
    from large_run import large_page

    gpuperf = CommandLine(tmp_path_factory.mktemp("pages"))
    for name in (ATTENTION, PROFILED, PLANE, LINKS):
        ended = gpuperf.within("show", str(run_file(name)), "--html", f"{name}.html")
        assert ended.code == 0, ended.err
    runs = gpuperf.folder / "runs"
    runs.mkdir()
    for name in ("h200-copy", "h200-vector-add"):
        (runs / f"{name}.jsonl").write_text(text_of(run_file(name)), encoding="utf-8")
    assert gpuperf.within("show", "runs", "--html", "history.html").code == 0
    verdict = str(MEASURED / "gates" / "regressions")
    assert gpuperf.within("show", verdict, "--html", "verdict.html").code == 0
    lines = (json.loads(line) for line in text_of(run_file(ATTENTION)).split("\n") if line)
    hostile = gpuperf.folder / "hostile.jsonl"
    hostile.write_text("\n".join(json.dumps(poisoned(line)) for line in lines), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:  # so that the script adds its rows
        patch.setattr(html, "LONG", 3)
        patch.setattr(html, "TALL", 2)
        assert gpuperf.within("show", hostile.name, "--html", "hostile.html").code == 0
    (gpuperf.folder / "large.html").write_text(large_page(5000), encoding="utf-8")
    return gpuperf.folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def open_page(browser: Any, folder: Path) -> Iterator[Open]:
    """Opens the page of a run from disk, and at the end checks that it loaded and said nothing."""
    contexts, heard = [], []

    def opened(name: str, **context: Any) -> Any:
        contexts.append(browser.new_context(viewport={"width": 1200, "height": 900}, **context))
        page = contexts[-1].new_page()
        page.on("console", lambda message: heard.append(message.text))
        page.on("pageerror", lambda error: heard.append(str(error)))
        page.on("request", lambda request: heard.append(request.url) if foreign(request) else None)
        page.goto((folder / f"{name}.html").as_uri())
        if context.get("java_script_enabled", True):
            page.wait_for_selector("html[data-ready]", state="attached")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert heard == []


def foreign(request: Any) -> bool:
    return not request.url.startswith(("file:", "data:", "blob:"))


def visible(page: Any, selector: str) -> int:
    shown = "nodes => nodes.filter(node => getComputedStyle(node).display !== 'none').length"
    return int(page.locator(selector).evaluate_all(shown))


MARKS, ROWS = ".marks > *", ".roofline tbody tr"


def test_the_marks_are_the_records_with_a_place(open_page: Open) -> None:
    page = open_page(ATTENTION)
    entries = entries_of(read_run(run_file(ATTENTION)))
    assert visible(page, MARKS) == len([e for e in entries if e.placement]) == 16
    assert visible(page, ROWS) == 16


def test_the_bytes_that_are_chosen_move_the_marks(open_page: Open) -> None:
    page = open_page(ATTENTION)
    place = "nodes => nodes.map(n => n.getAttribute('transform') || n.getAttribute('cx')).join()"
    seen = set()
    for view in ("compulsory", "modelled", "measured"):
        page.check(f"input[value={view}]")
        assert page.locator(f".stage > svg.v-{view}").count() == 1
        seen.add(page.locator(MARKS).evaluate_all(place))
        assert visible(page, f".layer.{view}") == 2
        assert visible(page, ".layer") == 2
        struck = page.locator(".legend button.missing").count()
        assert struck == (6 if view == "modelled" else 0)  # the others' bytes are not modelled
    assert len(seen) == 3
    # Under the compulsory bytes, all implementations of a size have one intensity.
    page.check("input[value=compulsory]")
    boxes = [page.locator(f'[data-r="{row}"]').bounding_box() for row in (0, 3)]
    assert boxes[0]["x"] + boxes[0]["width"] / 2 == pytest.approx(
        boxes[1]["x"] + boxes[1]["width"] / 2, abs=1.5
    )


def test_an_implementation_is_isolated_in_the_chart_and_in_its_table(open_page: Open) -> None:
    page = open_page(ATTENTION)
    button = page.get_by_role("button", name="sdpa_flash bf16")
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    assert (visible(page, MARKS), visible(page, ROWS)) == (2, 2)
    assert {c.split()[0] for c in page.locator(f"{ROWS}:visible").all_inner_texts()} == {
        "sdpa_flash"
    }
    page.get_by_role("button", name="flex bf16").click(modifiers=["Shift"])
    assert (visible(page, MARKS), visible(page, ROWS)) == (4, 4)
    page.locator(".stage").press("Escape")
    assert (visible(page, MARKS), visible(page, ROWS)) == (16, 16)


def test_words_filter_the_rows_and_their_marks(open_page: Open) -> None:
    page = open_page(ATTENTION)
    page.get_by_role("searchbox").fill("sdpa 4096")
    assert (visible(page, MARKS), visible(page, ROWS)) == (4, 4)
    assert page.locator("output").first.inner_text() == "4 of 16 rows"
    page.get_by_role("searchbox").fill("no such row")
    assert (visible(page, MARKS), visible(page, ROWS)) == (0, 0)
    page.get_by_role("searchbox").fill("")
    assert (visible(page, MARKS), visible(page, ROWS)) == (16, 16)


def test_a_column_is_sorted_by_its_values_and_not_by_its_letters(open_page: Open) -> None:
    page = open_page(ATTENTION)
    head = page.locator(".roofline th", has_text="time")
    times = []
    for order in ("ascending", "descending", None):
        head.get_by_role("button").click()
        assert head.get_attribute("aria-sort") == order
        times.append(page.locator(f"{ROWS} td:nth-child(4)").all_inner_texts())
    assert times[0][0].endswith("µs")
    assert times[0][-1].endswith("ms")
    assert times[1] == times[0][::-1]
    assert times[2][0] == "70.55 µs"


def test_a_point_shows_its_figures_to_the_pointer_and_to_the_keyboard(open_page: Open) -> None:
    page = open_page(ATTENTION)
    page.locator('[data-r="0"]').scroll_into_view_if_needed()
    box = page.locator('[data-r="0"]').bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tip = page.locator(".tip")
    words = tip.inner_text()
    assert "eager bf16" in words
    for part in ("time", "70.55 µs", "interval", "of roof", "caveats", "fewer-bytes"):
        assert part in words
    page.mouse.move(1, 1)
    assert tip.is_hidden()
    stage = page.locator(".stage")
    stage.focus()
    stage.press("ArrowRight")
    first = tip.inner_text()
    stage.press("ArrowRight")
    assert first != tip.inner_text()
    stage.press("ArrowLeft")
    assert tip.inner_text() == first
    stage.press("Enter")
    assert visible(page, MARKS) == 2
    stage.press("Escape")
    assert visible(page, MARKS) == 16


def test_the_tab_key_reaches_the_controls_in_the_order_of_the_page(open_page: Open) -> None:
    page = open_page(ATTENTION)
    reached = []
    for _ in range(14):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate(
                "() => { const a = document.activeElement;"
                "return a.value || a.textContent.trim() || a.placeholder || a.className }"
            )
        )
    assert reached[:3] == ["Dark", "Save the run file", "Save as PNG"]  # the bars
    assert reached[3] in ("measured", "modelled", "compulsory")
    assert reached[4] == "eager bf16"
    assert reached[12].startswith("1,000") or "FLOP" in reached[12]  # the roofline
    assert reached[13] == "Save as PNG"


def test_the_page_is_dark_where_the_system_is_and_where_the_reader_asks(open_page: Open) -> None:
    ground = "() => getComputedStyle(document.body).backgroundColor"
    page = open_page(ATTENTION, color_scheme="dark")
    assert page.evaluate(ground) == "rgb(21, 24, 28)"
    page.get_by_role("button", name="Light").click()
    assert page.evaluate(ground) == "rgb(255, 255, 255)"
    page.get_by_role("button", name="Dark").click()
    assert page.evaluate(ground) == "rgb(21, 24, 28)"
    page.emulate_media(media="print")
    assert page.evaluate(ground) == "rgb(255, 255, 255)"
    assert page.locator(".views").is_hidden()
    assert page.locator(".filter").first.is_hidden()


def test_without_a_script_the_page_has_its_chart_and_its_whole_table(open_page: Open) -> None:
    page = open_page(ATTENTION, java_script_enabled=False)
    assert page.locator(MARKS).count() == 16
    assert page.locator(".views").is_hidden()
    assert page.locator(ROWS).last.is_visible()
    assert page.locator("button").count() == 0


def test_a_pair_of_a_gate_shows_both_sides_and_the_verdict(open_page: Open) -> None:
    page = open_page("verdict")
    stage, tip = page.locator(".stage"), page.locator(".tip")
    stage.press("Home")
    words = tip.inner_text()
    for part in ("REGRESSED", "softmax/fused", "95 %", "screening pair 1 of", "base ", "head "):
        assert part in words
    stage.press("ArrowRight")
    assert "screening pair 2 of" in tip.inner_text()
    stage.press("ArrowDown")  # the next case
    assert "matmul/triton" in tip.inner_text()
    page.locator(MARKS).first.scroll_into_view_if_needed()
    page.locator(MARKS).first.hover(force=True)
    assert "softmax/fused" in tip.inner_text()
    every = visible(page, MARKS)
    page.get_by_role("button", name="unchanged").click()
    assert 0 < visible(page, MARKS) < every
    assert visible(page, ".pairs tbody tr") == visible(page, ".row[data-row]") == 3


def test_an_operator_of_a_profile_unfolds_its_kernels_by_a_key(open_page: Open) -> None:
    page = open_page(PROFILED)
    folded = page.locator("details").first
    assert not folded.locator("li").first.is_visible()
    folded.locator("summary").press("Enter")
    assert folded.locator("li").first.is_visible()
    assert " × " in folded.locator("li").first.inner_text()


def test_the_run_file_is_saved_out_of_the_page(open_page: Open, tmp_path: Path) -> None:
    page = open_page(ATTENTION)
    with page.expect_download() as download:
        page.get_by_role("button", name="Save the run file").click()
    saved = tmp_path / download.value.suggested_filename
    download.value.save_as(saved)
    assert saved.name == "run.jsonl.gz"
    assert read_run(saved) == read_run(run_file(ATTENTION))


@pytest.mark.parametrize("number", [1, 2])
def test_a_chart_is_saved_as_a_picture_of_its_present_view(
    open_page: Open, tmp_path: Path, number: int
) -> None:
    page = open_page(ATTENTION, color_scheme="dark")
    shades = []
    for isolated in (False, True):
        if isolated:
            page.get_by_role("button", name="sdpa_flash bf16").click()
        with page.expect_download() as download:
            page.get_by_role("button", name="Save as PNG").nth(number - 1).click()
        assert download.value.suggested_filename == f"chart-{number}.png"
        saved = tmp_path / f"{isolated}.png"
        download.value.save_as(saved)
        width, height, shade = picture(saved)
        assert width >= 1600
        assert height > 600
        shades.append(shade)
    assert all(0.01 < shade < 0.5 for shade in shades)  # light words on a dark ground
    assert (shades[0] != shades[1]) == (number == 2)  # the bars have no series to isolate


def picture(path: Path) -> tuple[int, int, float]:
    """Return width, height, and the share of the range of grey by which pixels differ from the
    corner."""
    from matplotlib.image import imread

    grey = imread(path)[:, :, :3].mean(axis=2)
    return grey.shape[1], grey.shape[0], float(abs(grey - grey[0, 0]).mean())


def test_names_that_are_markup_stay_text_in_the_browser(open_page: Open) -> None:
    page = open_page("hostile")
    page.on("dialog", lambda dialog: pytest.fail("a text of the run was executed"))
    assert page.locator("img").count() == 1  # the chart of the comparison
    assert visible(page, ROWS) == 16
    page.locator(".stage").press("ArrowRight")
    assert "<img src=x onerror=" in page.locator(".tip").inner_text()
    assert page.locator(".tip img").count() == 0


def test_5000_points_are_drawn_at_once(open_page: Open) -> None:
    page = open_page("large")
    assert page.locator(MARKS).count() == 5000
    assert visible(page, ROWS) == 200
    drawn_ms = page.evaluate(
        "() => new Promise(done => { const svg = document.querySelector('.stage > svg');"
        "svg.style.display = 'none'; requestAnimationFrame(() => { const start = performance.now();"
        "svg.style.display = ''; requestAnimationFrame(() => setTimeout("
        "() => done(performance.now() - start))) }) })"
    )
    assert drawn_ms < 300
    page.locator(".legend button", has_text="way_3").click()
    assert visible(page, MARKS) == visible(page, ROWS) == 1000


@pytest.mark.parametrize(
    ("name", "scheme"),
    [
        (ATTENTION, "dark"),
        (PROFILED, "light"),
        (PLANE, "light"),
        (LINKS, "dark"),
        ("history", "light"),
        ("verdict", "light"),
        ("verdict", "dark"),
    ],
)
def test_axe_finds_no_violation(open_page: Open, name: str, scheme: str) -> None:
    package = importlib.util.find_spec("axe_playwright_python")
    if package is None or package.origin is None:
        pytest.skip("needs axe-playwright-python")
    page = open_page(name, color_scheme=scheme)
    page.evaluate((Path(package.origin).parent / "axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate("() => axe.run()")["violations"]
    assert [(v["id"], [n["html"][:200] for n in v["nodes"][:3]]) for v in found] == []
