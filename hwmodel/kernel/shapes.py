"""Kernels of their own for the memories that are simulated most.

Numba compiles a kernel for each type of its arguments. A memory whose scalars are those of a shape
below has CONSTANTS of a type of that shape, in which they are constants of the compiler: what they
rule out is not compiled, and the rest is quicker. Results are those of the kernel for all memories,
command by command.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from hwmodel.kernel.compiling import CONSTANT_FIELDS
from hwmodel.kernel.hooks import MECHANISMS
from hwmodel.kernel.limits import FRFCFS, OLDEST_READY, PAGE_OPEN, Int
from hwmodel.kernel.timing import CONSTANTS, lower
from hwmodel.specs.commands import COMMANDS
from hwmodel.specs.memory_spec import MemorySpec

ONE_KERNEL = "BANKWISE_ONE_KERNEL"
"""Variable of the environment; with 1 the kernel for all memories serves these too, which spares
compilations where many memories are simulated a little."""
_PLAIN = {
    "scheduler": FRFCFS, "page_policy": PAGE_OPEN, "late_entry": 0, "forwarding": 1,
    "queue_per_bank": 0, "joint_queue": 0, "shared_queue": 0, "activation_buffer": 0,
    "plain_columns": 1,
    "protects": 0, "sleeps": 0, **{each.on: 0 for each in MECHANISMS.values()},
    "lazy": 0, "data_clocks": 1, "check_dq": 0,
}  # fmt: skip
"""Scalars of a plain controller, by their names in `hwmodel.kernel.timing`."""
_ONE_STEP = _PLAIN | {"steps": 1, "first": COMMANDS.index("ACT"), "sync": 0}
_LPDDR5 = _PLAIN | {
    "pcs": 1, "ranks": 1, "banks_per_pc": 16, "banks_per_rank": 16,
    "steps": 2, "first": COMMANDS.index("ACT1"), "sync": 1, "one_bus": 1, "one_queue": 1,
    "windows": 1, "n_odd": 0,
}  # fmt: skip
SHAPES: dict[str, dict[str, int]] = {
    "lpddr5": _LPDDR5,
    "lpddr5 under Ramulator's controller": _LPDDR5 | {
        "scheduler": OLDEST_READY, "late_entry": 1, "activation_buffer": 32, "lazy": 1,
    },
    "two pseudo-channels": _ONE_STEP | {"pcs": 2, "one_bus": 0, "one_queue": 0},
    "one pseudo-channel": _ONE_STEP | {"pcs": 1, "one_queue": 1},
}  # fmt: skip
"""Each costs a compilation of the kernels where it is first met, some 10 CPU seconds."""


def _kind(scalars: dict[str, int]) -> np.dtype[np.void]:
    """CONSTANTS as a type of its own: with one more name for its first bytes, by which Numba tells
    it, and its cache on disk, from those of other shapes and values."""
    digest = hashlib.sha256(repr(sorted(scalars.items())).encode()).hexdigest()[:16]
    names = [*(CONSTANTS.names or ()), f"shape_{digest}"]
    places = [CONSTANTS.fields[each] for each in names[:-1]]  # type: ignore[index]
    kind = np.dtype(
        {
            "names": names,
            "formats": [*(place[0] for place in places), np.int64],
            "offsets": [*(place[1] for place in places), 0],
            "itemsize": CONSTANTS.itemsize,
        }
    )
    CONSTANT_FIELDS[names[-1]] = scalars
    return kind


KINDS = {name: _kind(scalars) for name, scalars in SHAPES.items()} | {"any": CONSTANTS}
"""The types of CONSTANTS by shape, and that for all memories."""


def _scalars(constants: NDArray[np.void], names: Iterable[str]) -> Int:
    """The values of scalars, shape (names,)."""
    offsets = [CONSTANTS.fields[name][1] // 8 for name in names]  # type: ignore[index]
    return constants.view(np.int64)[offsets]


_VALUES = {name: np.array(list(scalars.values())) for name, scalars in SHAPES.items()}


def shape_of(constants: NDArray[np.void]) -> str | None:
    """The shape of a memory's CONSTANTS, shape (1,), or None."""
    for name, scalars in SHAPES.items():
        if np.array_equal(_scalars(constants, scalars), _VALUES[name]):
            return name
    return None


def lowered(memory: MemorySpec) -> NDArray[np.void]:
    """A memory's CONSTANTS, shape (1,), of the type whose kernel is quickest for it. Raises
    ValueError as `hwmodel.kernel.timing.lower` does."""
    return shaped(lower(memory))


def kernel_of(memory: MemorySpec) -> str:
    """The name in `KINDS` of the kernel that simulates a memory: those with the same one share what
    is compiled. Raises ValueError as `lowered` does."""
    kind = lowered(memory).dtype
    return next(name for name, each in KINDS.items() if each == kind)


def shaped(constants: NDArray[np.void]) -> NDArray[np.void]:
    """The same CONSTANTS, of the type of their shape where they have one; not where ONE_KERNEL is
    1."""
    if os.environ.get(ONE_KERNEL, "0") not in ("", "0"):
        return constants
    name = shape_of(constants)
    return constants if name is None else constants.view(KINDS[name])
