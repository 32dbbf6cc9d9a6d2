"""A cuBLASLt in Python at the edge of the hardware: it reads and writes the same structures.

Its algorithms have a number and a configuration in the words of their `Algo`. Those of `SLOWNESS`
run, and a call notes which ran.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from gpuperf.kernels._cublaslt import Algo

SUCCESS, INVALID, UNSUPPORTED = 0, 7, 15
VERSION = 130802
# Sizes in bytes by cublasLt.h: of attributes of descriptions, preferences and configurations.
DESCRIPTION = {3: 4, 17: 8, 18: 8, 25: 1}
PREFERENCE = {0: 4, 1: 8, 3: 4, 5: 4, 6: 4, 7: 4, 8: 4}
CONFIGURATION = {0: 4, 1: 4, 2: 4, 3: 4, 4: 4, 5: 4, 6: 4, 7: 2}  # cuBLAS 11 has no clusters
TILES, STAGES, CUSTOM_MOST = (15, 20, 24), (0, 36), 2
WIDE = 24  # the tile that no heuristic lists


class FakeCublasLt:
    """The functions that the binding calls, by their names."""

    def __init__(self, numbers: tuple[int, ...] = (66, 7), broken: tuple[int, ...] = ()) -> None:
        self.numbers, self.broken = numbers, broken
        self.made: list[tuple[str, tuple[int, ...]]] = []
        self.destroyed: list[str] = []
        self.set: dict[tuple[str, int], bytes] = {}
        self.ran: list[tuple[int, ...]] = []
        self.run: Callable[[tuple[int, ...]], None] = lambda words: None
        self.unbegun: tuple[int, ...] = ()  # numbers that are listed and cannot begin
        self.cublasLtGetVersion = _Function(lambda: VERSION)

    def __getattr__(self, name: str) -> Any:
        if name.endswith("Create"):
            return self._creator(name.removeprefix("cublasLt").removesuffix("Create"))
        if name.endswith("Destroy"):
            return lambda made: self.destroyed.append(name) or SUCCESS
        if name.endswith(("DescSetAttribute", "PreferenceSetAttribute")):
            return self._setter(name)
        raise AttributeError(name)

    def _creator(self, what: str) -> Callable[..., int]:
        def create(made: Any, *sizes: Any) -> int:
            self.made.append((what, tuple(size.value for size in sizes)))
            made._obj.value = len(self.made)
            return SUCCESS

        return create

    def _setter(self, name: str) -> Callable[..., int]:
        sizes = DESCRIPTION if "Desc" in name else PREFERENCE
        what = "description" if "Desc" in name else "preference"

        def set_attribute(of: Any, which: Any, value: Any, size: Any) -> int:
            if sizes.get(which.value) != size.value:
                return INVALID
            self.set[what, which.value] = bytes(value._obj)
            return SUCCESS

        return set_attribute

    def cublasLtMatmulAlgoGetIds(self, handle: Any, *args: Any) -> int:
        count, ids, found = args[-3:]
        own = self.numbers[: count.value]
        ids[: len(own)] = own
        found._obj.value = len(own)
        return SUCCESS

    def cublasLtMatmulAlgoInit(self, handle: Any, *args: Any) -> int:
        number, algo = args[-2:]
        if number.value in self.unbegun:
            return INVALID
        algo._obj.data[0] = number.value
        return SUCCESS

    def cublasLtMatmulAlgoGetHeuristic(self, *args: Any) -> int:
        count, results, found = args[-3:]
        if not self.numbers:
            return UNSUPPORTED
        mode = int.from_bytes(self.set["preference", 0], "little")
        number = results[0].algo.data[0] if mode == 1 else self.numbers[0]
        listed = [(number, 15, 36), (number, 20, 36)][: count.value]
        for result, (own, tile, stages) in zip(results, listed, strict=False):
            result.algo.data[0], result.algo.data[1], result.algo.data[6] = own, tile, stages
            result.algo.data[2] = 1
            result.workspace_bytes, result.state = 1 << 20, SUCCESS
        found._obj.value = len(listed)
        return SUCCESS

    def cublasLtMatmulAlgoConfigGetAttribute(
        self, algo: Any, which: Any, value: Any, size: Any, written: Any
    ) -> int:
        if CONFIGURATION.get(which.value) != size.value:
            return INVALID
        value._obj.value = algo._obj.data[which.value]
        return SUCCESS

    def cublasLtMatmulAlgoConfigSetAttribute(
        self, algo: Any, which: Any, value: Any, size: Any
    ) -> int:
        if CONFIGURATION.get(which.value) != size.value:
            return INVALID
        algo._obj.data[which.value] = value._obj.value
        return SUCCESS

    def cublasLtMatmulAlgoCapGetAttribute(
        self, algo: Any, which: Any, values: Any, size: Any, written: Any
    ) -> int:
        can = {0: (1,), 1: (7,), 2: (1,), 6: TILES, 7: (CUSTOM_MOST,), 13: STAGES}[which.value]
        values[: len(can)] = can
        written._obj.value = ctypes.sizeof(values._type_) * len(can)
        return SUCCESS

    def cublasLtMatmulAlgoCheck(self, *args: Any) -> int:
        algo, result = args[-2:]
        if algo._obj.data[0] not in self.numbers or algo._obj.data[6] == 0:
            return UNSUPPORTED
        result._obj.workspace_bytes = algo._obj.data[2] << 20
        return SUCCESS

    def cublasLtMatmul(self, *args: Any) -> int:
        words = tuple(args[-4]._obj.data)
        self.ran.append(words)
        self.run(words)
        return UNSUPPORTED if words[1] in self.broken else SUCCESS


class _Function:
    """A function of a library, which has a type of its result."""

    def __init__(self, function: Callable[[], int]) -> None:
        self.restype: Any = None
        self._function = function

    def __call__(self) -> int:
        return self._function()


def words_of(*values: int) -> tuple[int, ...]:
    """Return the words of an `Algo` that begin with *values*."""
    return tuple(Algo((ctypes.c_uint64 * 8)(*values)).data)
