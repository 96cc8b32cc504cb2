"""Compile options of the kernels, in one place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba

from hwmodel.kernel.cache import keep_kernels
from hwmodel.kernel.compiling import KernelCompiler, Part

KEPT = keep_kernels()
"""Whether kernels are kept on disk."""
_njit: Any = numba.njit
_OPTIONS = {"nogil": True, "error_model": "numpy"}
_PART = _OPTIONS | {"nopython": True, "boundscheck": None, "_nrt": False}
_PART |= {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function that is inlined into every kernel that calls it. It allocates nothing, and
    counts no references to the arrays that pass through it."""
    return Part(function, _PART | {"forceinline": True})


def called(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a part that kernels call: what they seldom need, or what is large."""
    return Part(function, _PART | {"forceinline": False})  # Numba would take it from the caller


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a kernel: no Python objects, no lock, cached on disk, integer arithmetic."""
    return _njit(cache=KEPT, **_OPTIONS)(function)


def simulation(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a kernel that allocates nothing, so that no reference has to be counted, and that may
    have parts."""
    return _njit(cache=KEPT, _nrt=False, pipeline_class=KernelCompiler, **_OPTIONS)(function)
