"""What is a case called among others: which of its axes tell it from them?

An id names every axis (`attention/sdpa_flash[batch=2,heads=16,gqa=1,seq=1024,…]`). Among the cases
of one report, an axis that is the same in all cases of an operation tells nothing: it is left out
and said once, in `fixed`. An id of another form is called as it is, and no two cases alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpuperf.model.text import clean, shorten
from gpuperf.model.workload import id_parts
from gpuperf.show.axes import binary

Axes = dict[str, str]


class Names:
    """The names of *cases* in at most *most* characters."""

    def __init__(self, cases: Iterable[str], most: int = 60) -> None:
        self._parsed = {case: id_parts(case) for case in cases}
        self._first: dict[str, Axes] = {}
        self._varying: dict[str, set[str]] = {}
        for found in self._parsed.values():
            if found is not None:
                self._note(found[0], found[2])
        self._names: dict[str, str] = {}
        taken: dict[str, int] = {}
        for case in self._parsed:
            self._names[case] = _free([self._brief(case), clean(case)], most, taken)

    def _note(self, op: str, axes: Axes) -> None:
        first, varying = self._first.setdefault(op, {}), self._varying.setdefault(op, set())
        for axis, value in axes.items():
            if first.setdefault(axis, value) != value:
                varying.add(axis)

    def _brief(self, case: str) -> str:
        """Return the operation, its implementation, and the axes that vary, or else the sizes."""
        found = self._parsed[case]
        if found is None:
            return clean(case)
        op, implementation, axes = found
        varying = self._varying[op]
        kept = {axis: value for axis, value in axes.items() if axis in varying}
        if not varying:
            kept = {a: v for a, v in axes.items() if v.isdecimal() and v not in ("0", "1")}
        name = f"{op}/{implementation}" if implementation else op
        return clean(" ".join([name, *_merged(kept)]))

    def of(self, case: str) -> str:
        """The name of *case*; its id, for one that is not among the others."""
        return self._names.get(case) or clean(case)

    def told(self, text: str) -> str:
        """*text* with the ids in it replaced by names."""
        if "[" in text:
            for case, found in self._parsed.items():
                if found is not None and case in text:
                    text = text.replace(case, self._names[case])
        return clean(text)

    @property
    def fixed(self) -> Mapping[str, str]:
        """By operation, the axes that no name of its cases holds: `{"softmax": "dtype=bf16"}`."""
        found = {}
        for op, first in self._first.items():
            alone = not self._varying[op]
            left = [
                f"{axis}={value}"
                for axis, value in first.items()
                if axis not in self._varying[op]
                and not (alone and value.isdecimal() and value not in ("0", "1"))
            ]
            if left:
                found[clean(op)] = clean(", ".join(left))
        return found


def _merged(axes: Axes) -> Iterable[str]:
    """`m=n=k=4096`: dimensions of one letter that stand together and are equal, together."""
    names: list[str] = []
    last = ""
    for axis, value in axes.items():
        if names and not (value == last and len(axis) == len(names[-1]) == 1):
            yield f"{'='.join(names)}={binary(last)}"
            names = []
        names.append(axis)
        last = value
    if names:
        yield f"{'='.join(names)}={binary(last)}"


def _free(wanted: list[str], most: int, taken: dict[str, int]) -> str:
    """The first of *wanted* that no other case has, in *most* characters; numbered, if need be."""
    for name in wanted:
        short = shorten(name, most) or "(no name)"
        if short not in taken:
            taken[short] = 1
            return short
    while True:  # once, unless a case is named like a numbered one
        taken[short] += 1
        numbered = f"{shorten(short, most - 8)} ({taken[short]})"
        if numbered not in taken:
            taken[numbered] = 1
            return numbered


def whole_names(cases: Iterable[str], most: int) -> Mapping[str, str]:
    """The ids of *cases* with every axis, each in at most *most* characters, no two alike."""
    taken: dict[str, int] = {}
    return {case: _free([clean(case)], most, taken) for case in dict.fromkeys(cases)}
