"""Compile options of the kernels, in one place.

Numba's on-disk cache does not notice a change in another file that a kernel calls
(numba/numba#6061), so the cache directory is keyed by a hash of the kernel sources.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba import types
from numba.np import arrayobj

_PACKAGE = "".join(f"{len(part)}{part}" for part in __package__.split("."))
"""This package in a mangled name."""
_BESIDE = Path(__file__).parents[1] / "specs" / "commands.py"
"""What the kernels use from outside this package: the numbering of commands."""


def source_digest() -> str:
    """A hash of the kernels' sources and of what compiles them."""
    digest = hashlib.sha256(numba.__version__.encode())
    for file in [*sorted(Path(__file__).parent.glob("*.py")), _BESIDE]:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _cache_directory() -> str:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return str(Path(base) / "bankwise" / f"kernels-{source_digest()}")


if "NUMBA_CACHE_DIR" not in os.environ:
    numba.config.CACHE_DIR = _cache_directory()  # type: ignore[attr-defined]


def _without_wraparound() -> None:
    """Compile the kernels' indices as they stand, not as Python's, which count from the end when
    negative: no kernel uses that, and its test on every access costs a quarter of the time.

    Touches one function inside Numba, for functions of this package alone; where a later Numba
    has no such function, kernels are only slower.
    """
    original = getattr(arrayobj, "fix_integer_index", None)
    if original is None:
        return

    def fix_integer_index(context: Any, builder: Any, kind: Any, index: Any, size: Any) -> Any:
        if _PACKAGE not in builder.function.name:
            return original(context, builder, kind, index, size)
        return context.cast(builder, index, kind, types.intp)

    arrayobj.fix_integer_index = fix_integer_index


_without_wraparound()


_njit: Any = numba.njit
_OPTIONS = {"cache": True, "nogil": True, "error_model": "numpy"}
_PART = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
"""Only kernels call a part: what Python would call it by, with copies of it, is not compiled.
Python that calls one crashes; it may call its `py_func`."""


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function that is inlined into every kernel that calls it. It allocates nothing, and
    counts no references to the arrays that pass through it."""
    return _njit(forceinline=True, _nrt=False, **_OPTIONS, **_PART)(function)


def called(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a part that kernels call: what they seldom need, or what is large."""
    return _njit(_nrt=False, **_OPTIONS, **_PART)(function)


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a kernel: no Python objects, no lock, cached on disk, integer arithmetic."""
    return _njit(**_OPTIONS)(function)


def simulation(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a kernel that allocates nothing, so that no reference has to be counted."""
    return _njit(_nrt=False, **_OPTIONS)(function)
