"""Compile options of the kernels, in one place."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from threading import RLock
from typing import Any

import numba
from numba import types

from hwmodel.kernel.cache import keep_kernels
from hwmodel.kernel.compiling import KernelCompiler, KernelPart

KEPT = keep_kernels()
"""Whether kernels are kept on disk."""
_njit: Any = numba.njit
_cfunc: Any = numba.cfunc
_OPTIONS = {"nogil": True, "error_model": "numpy"}
_PART = _OPTIONS | {"nopython": True, "boundscheck": None, "_nrt": False}
_PART |= {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function that is inlined into every kernel that calls it. It allocates nothing, and
    counts no references to the arrays that pass through it."""
    return KernelPart(function, _PART | {"forceinline": True})


def called(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a part that kernels call: what they seldom need, or what is large."""
    return KernelPart(
        function, _PART | {"forceinline": False}
    )  # Numba would take it from the caller


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a kernel: no Python objects, no lock, cached on disk, integer arithmetic."""
    return _njit(cache=KEPT, **_OPTIONS)(function)


def simulation(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a kernel that allocates nothing, so that no reference has to be counted, and that may
    have parts."""
    return _njit(cache=KEPT, _nrt=False, pipeline_class=KernelCompiler, **_OPTIONS)(function)


def once(make: Callable[..., Any]) -> Callable[..., Any]:
    """Keep what a function made of its arguments; of threads that ask at once, one makes it."""
    kept, lock = cache(make), RLock()

    @wraps(make)
    def locked(*arguments: Any) -> Any:
        with lock:
            return kept(*arguments)

    return locked


def c_function(arguments: int) -> Callable[[Callable[..., int]], Callable[[], Any]]:
    """Make of a kernel a function that C, Python (`ctypes`) and jitted code call, of so many int64
    arguments and of an int64 result; it is compiled when it is first asked for."""
    signature = types.int64(*[types.int64] * arguments)

    def lazily(function: Callable[..., int]) -> Callable[[], Any]:
        @once
        @wraps(function)
        def compiled() -> Any:
            options = {"_nrt": False, "error_model": "numpy"}
            compile_now = _cfunc(signature, cache=KEPT, pipeline_class=KernelCompiler, **options)
            return compile_now(function)

        return compiled

    return lazily
