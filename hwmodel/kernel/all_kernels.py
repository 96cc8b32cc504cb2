"""All kernels of channels, and those of other rooms that are named, compiled at once: for this
machine, or for a wheel."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hwmodel.description.description import DescriptionError


def compile_here(*others: Callable[[], Any]) -> Path:
    """Compile all kernels for this machine's processor, and what each of `others` does; from then
    on they are used in place of those that a wheel carries. The directory that keeps them. For a
    process that has compiled nothing. Raises DescriptionError where none can be kept."""
    from llvmlite import binding

    from hwmodel.kernel.cache import NATIVE, cache_directory

    _set_variables(NUMBA_CPU_NAME=binding.get_host_cpu_name())
    path = cache_directory()
    if path is None:
        raise DescriptionError("no directory can be written, so that no kernel is kept")
    _compile(others)
    (path / NATIVE).touch()
    return path


def compile_portable(folder: Path, *others: Callable[[], Any]) -> Path:
    """Compile all kernels, and what each of `others` does, for PORTABLE_CPU, for a wheel to carry
    (`CARRIED`), under the digest of their sources; the directory that has them. For a process that
    has compiled nothing."""
    from hwmodel.kernel.cache import PORTABLE_CPU, cache_directory

    with tempfile.TemporaryDirectory() as base:
        _set_variables(XDG_CACHE_HOME=base, NUMBA_CPU_NAME=PORTABLE_CPU, NUMBA_CPU_FEATURES="")
        path = cache_directory()
        assert path is not None
        _compile(others)
        return Path(shutil.copytree(path, folder / path.name, dirs_exist_ok=True))


def _set_variables(**values: str) -> None:
    """Change the environment, before the first kernel: Numba reads it now, for what it makes of
    this processor's features it would not change later."""
    from numba.core import config

    os.environ |= values
    config.reload_config()


def _compile(others: tuple[Callable[[], Any], ...]) -> None:
    import numpy as np

    from hwmodel.kernel.channel import runner
    from hwmodel.kernel.extents import descriptor_starts
    from hwmodel.kernel.shapes import KINDS
    from hwmodel.kernel.sources.calls import run_calls
    from hwmodel.kernel.sources.engines import run_engines
    from hwmodel.kernel.sources.traces import run_trace

    row = np.ones(1, np.int64)
    descriptor_starts(row, row, row, row, 1)
    for driver in (run_trace, run_engines, run_calls):
        driver()
    for kind in KINDS.values():
        runner(kind)
    for other in others:
        other()
