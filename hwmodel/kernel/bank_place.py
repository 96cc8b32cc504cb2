"""Kernel: the pseudo-channel and the rank of a bank. Where there is one, its number is known when
the kernel of such memories is compiled, and so is where its state lies."""

from __future__ import annotations

from hwmodel.kernel.jit import inlined
from hwmodel.kernel.kernel_names import Record


@inlined
def pc_of(memory: Record, bank: int) -> int:
    """Pseudo-channel of a flat bank."""
    return 0 if memory.pcs == 1 else memory.pc_of[bank]


@inlined
def rank_of(memory: Record, bank: int) -> int:
    """Rank of a flat bank, flat over pseudo-channels."""
    return 0 if memory.ranks == 1 else memory.rank_of[bank]
