"""What the order of KV costs where it is read: one layer of one sequence, by the shape of its KV,
its order, how a kernel walks through it, and a pad behind each row.

A kernel has blocks of its grid for each KV head, and numbers them head by head (FlashAttention's
and llama.cpp's do). Where all of them are resident at once, as of decode whose tokens are split,
the heads' reads together cover what lies between two rows of one head. Where a head has more blocks
than there are cores, as of a prompt's chunk, the cores are on one head or two at a time
(`heads_at_once`), and the channels that hold the rows of the others idle.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
from pydantic import Field

from hwmodel.description.description import Strict
from hwmodel.description.units import Bytes
from hwmodel.kernel.address import to_channel
from hwmodel.kernel.memory import Descriptors
from hwmodel.specs.device import Device
from hwmodel.specs.kv_order import LAYOUTS, Dims, KvOrder
from policies.allocators.kv_layout import KvLayout, Units
from policies.memory.dealing import deal
from policies.memory.probe_cache import simulate_once
from policies.memory.traffic import Reading, cut_into, decode

Count = Annotated[int, Field(ge=1)]
BLOCK = 16
"""Tokens of a block: vLLM's."""
LEAST_TOKENS, READ_NS, MOST_BYTES = 512, 20e3, 24 << 20
"""Of one read: as much as the peak moves in so long, at least so many tokens and at most so many
bytes (assumed: some hundred refresh intervals of a bank, and no minutes)."""
NUMBER_BYTES = 2
SEED = 20261128


class Geometry(NamedTuple):
    """Shape of a token's KV in a layer."""

    kv_heads: int
    head_dim: int

    @property
    def spacing_bytes(self) -> int:
        """From one token's row to the next in 16 bits, with tokens outermost."""
        return self.kv_heads * self.head_dim * NUMBER_BYTES


GEOMETRIES = (
    Geometry(2, 128), Geometry(4, 128), Geometry(4, 256), Geometry(8, 128), Geometry(32, 128),
)  # fmt: skip
"""Small models with shared KV heads, Qwen3-Coder-30B, Qwen3.5-27B, Llama-3.1-8B, and Llama-2-7B."""


class LayoutRead(Strict):
    """One layer's KV of one sequence, in 16 bits, as a kernel reads it."""

    kv_heads: Count
    """Of a layer."""
    head_dim: Count = 128
    """Numbers of a head."""
    order: KvOrder = LAYOUTS["layer_kv_token"]
    """Order of the KV in memory, as in `serving`."""
    pad: Bytes = 0
    """Behind each row, as `serving.kv_pad`."""
    block: Annotated[int, Field(ge=0)] = 0
    """Tokens of a shuffled block; 0: all tokens in one run."""
    heads_at_once: Count | None = None
    """Of which blocks are resident at once; the others come after them. None: all, as of decode."""
    drift: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Share of its part within which an engine is at a place of its own, drawn: cores begin when
    they are launched, and walk at their own pace. 0: all begin where their part does, in lockstep.
    """
    against: KvOrder | None = None
    """Such an order without a pad, of whose rate the figure is a share, in x."""


def layout_gbps(device: Device, read: LayoutRead) -> float:
    """GB/s of what such a kernel asks for that reach it (times `derate`), or the share in x of
    another order's. Raises DescriptionError where the memory is given."""
    stream = descriptors(device, read)
    found = simulate_once(device, stream)  # rows that straddle bursts move more than is asked for
    own = float(stream.size.sum() / found.elapsed_ns) * device.derate
    if read.against is None:
        return own
    other = read.model_copy(update={"order": read.against, "against": None, "pad": 0})
    return own / layout_gbps(device, other)


def channels_engaged(device: Device, read: LayoutRead) -> int:
    """Channels that one head's K is read from, of those that the device has."""
    layout, units = _laid_out(device, read)
    runs = layout.extents(units, 0, None if layout.passes == (None,) else 0, head=0)
    assert device.accelerator is not None
    offset, _ = cut_into(runs.size, device.accelerator.interleave)
    start = np.repeat(runs.start, -(-runs.size // device.accelerator.interleave)) + offset
    return len(np.unique(to_channel(device, start)[0]))


def descriptors(device: Device, read: LayoutRead) -> Descriptors:
    """What the engines of a device read, in their order: equal slices of the heads that are read at
    once, head by head."""
    layout, units = _laid_out(device, read)
    extents = decode(layout, [units], np.zeros(1, np.int64), 0, Reading("head_slice"))
    if read.heads_at_once is not None:  # those after them come alike
        extents = extents.of(extents.owner < read.heads_at_once)
    return deal(extents, device.dma.engines, "head_slice", device.dma.request, read.drift)


def _laid_out(device: Device, read: LayoutRead) -> tuple[KvLayout, Units]:
    """One layer, and where a sequence's tokens lie in it."""
    device.memory  # noqa: B018 - raises where it is given
    head_bytes = read.head_dim * NUMBER_BYTES
    row = 2 * min(read.heads_at_once or read.kv_heads, read.kv_heads) * head_bytes
    most = min(device.peak_gbps * READ_NS, MOST_BYTES)
    tokens = max(int(most) // row // BLOCK * BLOCK, LEAST_TOKENS)
    dims: Dims = read.order
    layout = KvLayout(0, tokens, 1, read.kv_heads, head_bytes, dims, pad_bytes=read.pad)
    if not read.block:
        one = np.array([tokens], np.int64)
        return layout, Units(np.zeros(1, np.int64), one, one)
    many = tokens // read.block
    start = np.random.default_rng(SEED).permutation(many) * read.block
    size = np.full(many, read.block, np.int64)
    return layout, Units(start.astype(np.int64), size, size)
