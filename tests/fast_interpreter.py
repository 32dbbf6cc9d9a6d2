"""Make Triton's interpreter faster without a change to what it computes.

Each launch, and each call of a device function, searches `triton.language` for the functions that
NumPy's replace; each operation builds the table of NumPy's dtypes. Both are remembered here: they
took half of the time of an interpreted kernel.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

__all__ = ["remember_lookups"]

REPLACED = ("_patch_builtin", "_patch_attr", "_patch_lang", "_LangPatchScope", "_get_np_dtype")


def remember_lookups() -> None:
    """Replace the slow lookups of Triton's interpreter, if this version has them."""
    try:
        from triton import language
        from triton.language import core
        from triton.runtime import interpreter
    except ImportError:  # no Triton
        return
    if not all(hasattr(interpreter, name) for name in REPLACED):
        return

    @functools.cache
    def builtin_names(package: Any) -> list[str]:
        return [name for name, member in inspect.getmembers(package) if core.is_builtin(member)]

    def patch_builtin(package: Any, *rest: Any) -> None:
        for name in builtin_names(package):
            member = getattr(package, name)
            if core.is_builtin(member):  # not replaced yet
                interpreter._patch_attr(package, name, member, *rest)

    @functools.cache
    def languages(function: Any) -> frozenset[Any]:
        return frozenset(v for v in function.__globals__.values() if v is core or v is language)

    patch_lang = interpreter._patch_lang
    patched: set[Any] = set()  # by the launch that runs

    def patch_once(function: Any) -> Any:
        if patched and languages(function) <= patched:
            return interpreter._LangPatchScope()  # a device function, whose caller has patched
        outer, scope = not patched, patch_lang(function)
        patched.update(languages(function))
        if outer:
            restore = scope.restore
            scope.restore = lambda: (patched.clear(), restore())
        return scope

    compute_dtype = interpreter._get_np_dtype
    scalar_dtype = functools.cache(compute_dtype)

    def np_dtype(dtype: Any) -> Any:
        if isinstance(dtype, core.block_type):
            dtype = dtype.element_ty
        return (compute_dtype if isinstance(dtype, core.pointer_type) else scalar_dtype)(dtype)

    interpreter._patch_builtin, interpreter._patch_lang = patch_builtin, patch_once
    interpreter._get_np_dtype = np_dtype
