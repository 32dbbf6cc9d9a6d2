"""Frame every chart: its size, theme, words, legends, panels, and files.

A chart is drawn inside `figure()`. Words and legends are fixed to the corners of the figure, and
`Frame.fit` gives the panels the space that their labels leave, so nothing is cut or overlaps.
Lengths are in inches. The same values give the same bytes.
"""

from __future__ import annotations

import importlib
import io
import math
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuperf.errors import UsageError
from gpuperf.files import write_atomically
from gpuperf.units import format_bytes, format_number

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# Okabe and Ito, Color Universal Design (2008), without the yellow, which is invisible on white.
COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00"),
    *("#56B4E9", "#000000", "#8A8A8A", "#7A4B1E", "#5B3A9E"),
)
MARKERS = (
    "o",
    "s",
    "^",
    "D",
    "v",
    "P",
    "X",
    "p",
    "h",
    "<",
)  # filled ones, since a hollow marker means a doubtful point
INK, FAINT, GRID = "#222222", "#666666", "#dddddd"
SUFFIXES = (".png", ".svg")
DPI = 200
WIDTH, SIDE, LEAST = 10.0, 0.2, 3.5  # width of the figure, its margin, the narrowest panel
TITLE, WORDS, NAMES, SMALL = 15.0, 10.0, 9.0, 8.0  # font sizes in points
LINE = 1.35  # height of a line over the size of its letters
MOST_LINES = 4  # lines of one wrapped text
MOST_ENTRIES = 48  # entries of a legend; further ones are counted
GAP = 0.16  # inches between panels and their labels
LARGEST = 300_000  # bytes of an SVG; the lines and points of a larger one become an image in it
ROUNDS = 2  # rounds of `fit`, since a narrower panel has other ticks
_FOREIGN = ("backend", "interactive", "toolbar", "timezone", "webagg.", "tk.", "keymap.")


def rc_parameters() -> Any:
    """Return matplotlib's defaults with our changes, whatever the user's matplotlibrc says."""
    import matplotlib

    defaults: dict[str, Any] = {
        name: value
        for name, value in dict[Any, Any](matplotlib.rcParamsDefault).items()
        if not name.startswith(_FOREIGN)
    }
    return {
        **defaults,
        "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans"],
        "font.size": 11,
        "text.parse_math": False,  # so that a `$` in a name is printed
        "text.color": INK,
        "axes.edgecolor": FAINT,
        "axes.labelcolor": INK,
        "xtick.color": FAINT,
        "ytick.color": FAINT,
        "xtick.labelcolor": INK,
        "ytick.labelcolor": INK,
        "svg.fonttype": "none",
        "svg.hashsalt": "gpuperf",
        "legend.frameon": False,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "grid.color": GRID,
        "grid.linewidth": 0.6,
    }


def import_ahead() -> None:
    """Import what every chart needs, for a second: while a worker starts, it costs no time."""
    for name in ("figure", "ticker", "lines", "backends.backend_agg", "backends.backend_svg"):
        importlib.import_module(f"matplotlib.{name}")
    importlib.import_module("plotext")  # of the charts in the terminal
    importlib.import_module("PIL.Image").preinit()  # the formats that a first save imports


@contextmanager
def figure(
    paths: str | Path | Iterable[str | Path],
    title: str,
    lines: Sequence[str] = (),
    notes: Iterable[str] = (),
    width: float = WIDTH,
) -> Iterator[Frame]:
    """Open a figure with its words, and write it to *paths* when the block ends.

    *lines* are below the title, *notes* at the foot.
    Raises: UsageError for a suffix other than .png and .svg, and for an unwritable path.
    """
    targets = targets_of(paths)
    import matplotlib

    with matplotlib.rc_context(rc_parameters()), warnings.catch_warnings():
        # The font draws a box for a character that it lacks, and warns.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font")
        frame = Frame(title, lines, notes, width)
        yield frame
        for target in targets:
            save_figure(frame.figure, target, title)


def targets_of(paths: str | Path | Iterable[str | Path]) -> tuple[Path, ...]:
    """Return the files that *paths* name. Raises: UsageError for a suffix of other files."""
    wanted = [paths] if isinstance(paths, str | Path) else list(paths)
    targets = tuple(Path(path) for path in wanted)
    for target in targets:
        if target.suffix.lower() not in SUFFIXES:
            raise UsageError(
                f"cannot draw to {target.name!r}: charts do not have the suffix {target.suffix!r}",
                f"end the name with {' or '.join(SUFFIXES)}",
            )
    return targets


def save_figure(drawn: Figure, target: Path, title: str) -> None:
    """Write *drawn* to *target*. Raises: UsageError where it cannot be written."""
    content = _content(drawn, target.suffix[1:].lower(), title)
    if target.suffix.lower() == ".svg" and len(content) > LARGEST:
        for artist in (each for axes in drawn.axes for each in (*axes.lines, *axes.collections)):
            artist.set_rasterized(True)
        content = _content(drawn, "svg", title)
    try:
        write_atomically(target, content)
    except OSError as error:
        raise UsageError(
            f"cannot write {str(target)!r}: {error.strerror or error}", "choose another file"
        ) from None


def _content(drawn: Figure, format: str, title: str) -> bytes:
    content = io.BytesIO()
    if format == "png":
        _write_png(drawn, content, title)
    else:
        drawn.savefig(content, dpi=DPI, format=format, metadata={"Title": title, "Date": None})
    return content.getvalue()


def _write_png(drawn: Figure, content: io.BytesIO, title: str) -> None:
    """Write *drawn* without transparency, which takes half of the time of matplotlib's own file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image, PngImagePlugin

    canvas: Any = FigureCanvasAgg(drawn)
    canvas.draw()
    pixels = canvas.buffer_rgba()
    image = Image.frombuffer("RGBA", pixels.shape[1::-1], pixels, "raw", "RGBA", 0, 1)
    words = PngImagePlugin.PngInfo()
    words.add_itxt("Title", title)
    image.convert("RGB").save(content, "png", pnginfo=words, dpi=(DPI, DPI), compress_level=3)


class Frame:
    """A figure with its words, around the panels of a chart."""

    def __init__(
        self, title: str, lines: Sequence[str], notes: Iterable[str], width: float
    ) -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        self.figure = Figure(figsize=(width, 6.0), dpi=DPI, facecolor="white")
        canvas: Any = FigureCanvasAgg(self.figure)
        self.renderer = canvas.get_renderer()
        self.heights: tuple[float, ...] = ()
        self.panels: list[list[Any]] = []
        self.top = 0.14
        self._write(title, TITLE, "bold")
        for line in lines:
            self._write(line, WORDS)
        small = [line for note in notes for line in self.wrapped(note, SMALL)]
        self.foot = 0.1 + len(small) * SMALL * LINE / 72
        for i, line in enumerate(small):
            self._pin(self.foot - i * SMALL * LINE / 72, line, SMALL, "bottom", color=FAINT)

    def _write(self, text: str, size: float, weight: str = "normal") -> None:
        for line in self.wrapped(text, size):
            self._pin(-self.top, line, size, "top", fontweight=weight)
            self.top += size * LINE / 72
        self.top += 0.03

    def _pin(self, up: float, text: str, size: float, corner: str, **look: Any) -> None:
        place = self._corner(up, corner)
        self.figure.text(0, 0, text, fontsize=size, va="top", transform=place, **look)

    def _corner(self, up: float, corner: str) -> Any:
        """Return a transform whose origin is at the left margin, *up* inches above an edge.

        *corner* names the edge, `top` or `bottom`; the origin follows it when the figure grows.
        """
        from matplotlib.transforms import Affine2D, ScaledTranslation

        moved = ScaledTranslation(SIDE, up, self.figure.dpi_scale_trans)
        return Affine2D().translate(0, corner == "top") + self.figure.transFigure + moved

    def size(self, text: str, points: float, weight: str = "normal") -> tuple[float, float]:
        """Return the width and the height of *text* in pixels."""
        from matplotlib.text import Text

        probe = Text(0, 0, text, fontsize=points, fontweight=weight)
        probe.set_figure(self.figure)
        extent = probe.get_window_extent(self.renderer)
        return extent.width, extent.height

    def wrapped(self, text: str, points: float) -> list[str]:
        """Wrap *text* to the figure's width; no line ends at a no-break space."""
        room = (self.figure.get_figwidth() - 2 * SIDE) * DPI
        letters = max(10, int(room / (points * DPI / 72 * 0.45)))
        weight = "bold" if points == TITLE else "normal"
        while True:
            lines = textwrap.wrap(
                text, letters, max_lines=MOST_LINES, placeholder=" …", break_on_hyphens=False
            )
            if letters <= 10 or all(self.size(line, points, weight)[0] <= room for line in lines):
                return [line.replace("\u00a0", " ") for line in lines]
            letters -= 2

    def legend(self, handles: Sequence[Any], most: int = 6, size: float = NAMES) -> None:
        """Write a legend of *handles* above the panels, in as few rows as possible."""
        from matplotlib.lines import Line2D

        if len(handles) > MOST_ENTRIES:
            more = Line2D([], [], linestyle="none", label=f"{len(handles) - MOST_ENTRIES} more")
            handles = [*handles[:MOST_ENTRIES], more]
        for columns in range(min(most, len(handles)), 0, -1):
            drawn = self.figure.legend(
                handles=handles,
                loc="upper left",
                bbox_to_anchor=(0, 0),
                fontsize=size,
                bbox_transform=self._corner(-self.top - 0.03, "top"),
                ncols=columns,
                borderpad=0,
                borderaxespad=0,
                columnspacing=1.6,
                handletextpad=0.6,
            )
            extent = drawn.get_window_extent(self.renderer)
            if extent.width <= (self.figure.get_figwidth() - 2 * SIDE) * DPI or columns == 1:
                self.top += 0.1 + extent.height / DPI
                return
            drawn.remove()

    def stack(self, *heights: float, columns: int = 1, **shared: Any) -> list[Any]:
        """Make panels in rows of *heights* from the top, and return them row by row."""
        self.heights = heights
        rows = self.figure.subplots(len(heights), columns, squeeze=False, **shared)
        self.panels = [list(row) for row in rows]
        self._place([(0.6, 0.6)] * columns, [(0.3, 0.5)] * len(heights), 0.0, LEAST)
        return [panel for row in self.panels for panel in row]

    def fit(self, right: float = 0.0, least: float = LEAST) -> None:
        """Place the panels so that their labels are inside the figure.

        *right* stays free beside the last panel; a panel is at least *least* wide.
        """
        for _ in range(ROUNDS):
            rows = [[self._beyond(panel) for panel in row] for row in self.panels]
            lines = zip(*rows, strict=True)
            sides = [(max(e[0] for e in line), max(e[1] for e in line)) for line in lines]
            ends = [(max(e[2] for e in row), max(e[3] for e in row)) for row in rows]
            self._place(sides, ends, right, least)

    def _beyond(self, panel: Any) -> tuple[float, float, float, float]:
        """Return how far the labels of *panel* extend to the left, right, top, and bottom."""
        inner = panel.get_window_extent(self.renderer)
        places = panel.get_position().bounds
        twins = [axes for axes in self.figure.axes if axes.get_position().bounds == places]
        boxes = [twin.get_tightbbox(self.renderer) for twin in twins]
        outer = [box for box in boxes if box is not None] or [inner]
        reach = (
            inner.x0 - min(box.x0 for box in outer),
            max(box.x1 for box in outer) - inner.x1,
            max(box.y1 for box in outer) - inner.y1,
            inner.y0 - min(box.y0 for box in outer),
        )
        left, right, above, below = (max(0.0, length / DPI) for length in reach)
        return left, right, above, below

    def _place(
        self,
        sides: Sequence[tuple[float, float]],
        ends: Sequence[tuple[float, float]],
        right: float,
        least: float,
    ) -> None:
        from matplotlib.transforms import Bbox

        columns = len(self.panels[0])
        beside = sum(map(sum, sides)) + GAP * (columns - 1) + 2 * SIDE + right
        width = max(self.figure.get_figwidth(), beside + columns * least)
        each = (width - beside) / columns
        above = [high + low + GAP for high, low in ends]
        height = self.top + sum(above) + sum(self.heights) + GAP + self.foot
        self.figure.set_size_inches(width, height)
        y = height - self.top
        for row, tall, (high, low) in zip(self.panels, self.heights, ends, strict=True):
            x, y = SIDE, y - GAP - high - tall
            for panel, (before, after) in zip(row, sides, strict=True):
                x += before
                box = Bbox.from_bounds(x / width, y / height, each / width, tall / height)
                panel.set_position(box)
                x += each + after + GAP
            y -= low


def label_ticks(
    axis: Any, text: Callable[[float], str], places: Sequence[float] | None = None
) -> None:
    """Write the ticks of *axis* by *text*, at *places* where they are given, without minor ticks'
    labels."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

    if places is not None:
        axis.set_major_locator(FixedLocator(places))
    axis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))
    axis.set_minor_formatter(NullFormatter())


def decades(low: float, high: float) -> float:
    """Return how many powers of ten are between *low* and *high*."""
    return math.log10(high / low)


def tick_values(low: float, high: float, steps: Sequence[int]) -> list[float]:
    """Return *steps* times powers of ten between *low* and *high*."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    values = (step * 10.0**power for power in range(first, last + 1) for step in steps)
    return [v for v in values if low <= v <= high]


def plain_number(value: float) -> str:
    """Write a tick without exponents: `0.05`, `10`, `20,000`."""
    if value < 1:
        return format_number(value, 1)
    return f"{value:,.10g}"


def plain_bytes(value: float) -> str:
    """Write a tick of bytes: `20 MB`."""
    number, unit = format_bytes(value).split(" ")
    return f"{float(number):g} {unit}"
