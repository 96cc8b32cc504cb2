"""All kernels of channels, compiled at once: for this machine, or for a wheel."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from hwmodel.description.description import DescriptionError


def compile_here() -> Path:
    """Compile all kernels for this machine's processor; from then on they are used in place of
    those that a wheel carries. The directory that keeps them. For a process that has compiled
    nothing. Raises DescriptionError where none can be kept."""
    from llvmlite import binding

    from hwmodel.kernel.cache import NATIVE, cache_directory

    _set_variables(NUMBA_CPU_NAME=binding.get_host_cpu_name())
    path = cache_directory()
    if path is None:
        raise DescriptionError("no directory can be written, so that no kernel is kept")
    _compile()
    (path / NATIVE).touch()
    return path


def compile_portable(folder: Path) -> Path:
    """Compile all kernels for PORTABLE_CPU, for a wheel to carry (`CARRIED`), under the digest of
    their sources; the directory that has them. For a process that has compiled nothing."""
    from hwmodel.kernel.cache import PORTABLE_CPU, cache_directory

    with tempfile.TemporaryDirectory() as base:
        _set_variables(XDG_CACHE_HOME=base, NUMBA_CPU_NAME=PORTABLE_CPU, NUMBA_CPU_FEATURES="")
        path = cache_directory()
        assert path is not None
        _compile()
        return Path(shutil.copytree(path, folder / path.name, dirs_exist_ok=True))


def _set_variables(**values: str) -> None:
    """Change the environment, before the first kernel: Numba reads it now, for what it makes of
    this processor's features it would not change later."""
    from numba.core import config

    os.environ |= values
    config.reload_config()


def _compile() -> None:
    import numba
    import numpy as np

    from hwmodel.kernel.channel import feed
    from hwmodel.kernel.channel_state import NO_COMPLETIONS, NO_LOG
    from hwmodel.kernel.completion import entry
    from hwmodel.kernel.extents import descriptor_starts
    from hwmodel.kernel.memory import Descriptors, prepare, run_system
    from hwmodel.kernel.shapes import KINDS
    from hwmodel.specs.device import load_device

    row = np.ones(1, np.int64)
    run = prepare(load_device("mlu370-x4"), Descriptors(0 * row, 0 * row, row, row > 1), 0, 0)
    descriptor_starts(row, row, row, row, 1)
    for kind in KINDS.values():
        of_kind = run._replace(constants=run.constants.view(kind))
        run_system.compile(tuple(map(numba.typeof, of_kind)))  # type: ignore[attr-defined]
        stream = (of_kind.constants, run.states, 0, row, row, row, 0, NO_LOG, NO_COMPLETIONS)
        feed.compile(tuple(map(numba.typeof, stream)))  # type: ignore[attr-defined]
        entry(kind)
