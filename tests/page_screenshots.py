"""Write a screenshot of each kind of page, for docs/measured/pages.

    python tests/page_screenshots.py FOLDER [WIDTH]

Needs Playwright and Chromium. Look at the pictures before you commit them.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from command_line import CommandLine
from measured import MEASURED, TESTS, run_file

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
WIDTH, HEIGHT, COLOURS = 1280, 900, 96
PAGES = {  # the name of a picture, what it shows, and the system's theme
    "roofline": (run_file("h200-matmul-bf16"), "light"),
    "roofline-dark": (run_file("h200-matmul-bf16"), "dark"),
    "compare": (run_file("h200-compare-attention"), "light"),
    "profile": (run_file("h200-profile-sdpa"), "light"),
    "gate": (MEASURED / "gates" / "slower-1", "light"),
    "lab": (TESTS / "golden" / "run_schema_11.jsonl", "light"),
    "history": (MEASURED, "light"),
}
# What is shown on the picture, scrolled to its top; without one, the top of the page.
SHOWN = {"compare": ".roofline", "profile": "table"}


def write_screenshots(folder: Path, width: int = WIDTH) -> list[Path]:
    """Write the pictures into *folder*, and return their paths."""
    from PIL import Image
    from playwright.sync_api import sync_playwright

    written = []
    with TemporaryDirectory() as made, sync_playwright() as playwright:
        gpuperf = CommandLine(Path(made))
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for name, (source, scheme) in PAGES.items():
            source = _history(Path(made)) if name == "history" else source
            ended = gpuperf.within("show", str(source), "--html", f"{name}.html")
            assert ended.code == 0, ended.err
            size = {"width": width, "height": HEIGHT}
            page = browser.new_page(viewport=size, color_scheme=scheme)
            page.goto((gpuperf.folder / f"{name}.html").as_uri())
            page.wait_for_selector("html[data-ready]", state="attached")
            _show(page, name)
            written.append(folder / f"{name}.png")
            page.screenshot(path=written[-1])
            with Image.open(written[-1]) as picture:  # few colours are a quarter of the bytes
                small = picture.convert("RGB").quantize(
                    COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
                )
            small.save(written[-1], optimize=True)
            page.close()
        browser.close()
    return written


def _show(page: Any, name: str) -> None:
    """Scroll to what the picture is of, and point at a mark or unfold an operator."""
    if name in SHOWN:
        page.locator(SHOWN[name]).first.evaluate("node => node.scrollIntoView()")
    if name == "profile":
        page.locator("summary").first.click()
    if name in ("roofline-dark", "gate"):
        for _ in range(3):
            page.locator(".stage").press("ArrowRight")
        page.locator(".stage").evaluate("() => scrollTo(0, 0)")


def _history(folder: Path) -> Path:
    runs = folder / "runs"
    runs.mkdir(exist_ok=True)
    for name in ("h200-suggest", "h200-suggest-again"):
        shutil.copy(run_file(name), runs)
    return runs


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    for path in write_screenshots(target, int(sys.argv[2]) if len(sys.argv) > 2 else WIDTH):
        print(f"{path}: {path.stat().st_size / 1000:.0f} kB")
