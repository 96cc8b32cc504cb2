"""What the order of KV costs where it is read: one layer of one sequence, by the shape of its KV,
its order, how a kernel walks through it, and a pad behind each row.

A kernel has a part of its grid for each KV head. Where all heads are resident at once, as of decode
whose tokens are split, their reads together cover what lies between two rows of one head
(`head_slice`). Where there are more blocks than cores, as of a prompt's chunk, the cores walk
through one head after another (`head_turn`), and what a row of another head would have used is
idle. So FlashAttention's and llama.cpp's grids are numbered: blocks of a head first.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field

from hwmodel.description.description import Strict
from hwmodel.description.units import Bytes
from hwmodel.kernel.address import to_channel
from hwmodel.kernel.memory import Descriptors
from hwmodel.specs.device import Device
from hwmodel.specs.kv_order import LAYOUTS, Dims, KvOrder
from policies.allocators.kv_layout import KvLayout, Units
from policies.memory.dealing import deal, joined
from policies.memory.probe_cache import simulate_once
from policies.memory.traffic import Reading, Spread, cut_into, decode

Count = Annotated[int, Field(ge=1)]
Walk = Literal["decode", "prefill"]
WALKS: dict[Walk, Spread] = {"decode": "head_slice", "prefill": "head_turn"}
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
    """As of serving."""
    pad: Bytes = 0
    """Behind each row, as `serving.kv_pad`."""
    block: Annotated[int, Field(ge=0)] = 0
    """Tokens of a shuffled block; 0: all tokens in one run."""
    walk: Walk = "decode"
    """Whether all heads are read at once, or one after another."""
    drift: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Share of its part, of a head where these come in turn, within which an engine is at a place
    of its own, drawn: cores begin when they are launched, and walk at their own pace. 0: all begin
    where their part does, in lockstep."""
    against: KvOrder | None = None
    """Such an order without a pad, of whose rate the figure is a share, in x."""


def layout_gbps(device: Device, read: LayoutRead) -> float:
    """GB/s that reach such a kernel (times `derate`), or the share in x of another order's. Raises
    DescriptionError where the memory is given."""
    stream = descriptors(device, read)
    found = simulate_once(device, stream)
    own = float(found.gbps) * device.derate
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
    """What the engines of a device read, in their order."""
    layout, units = _laid_out(device, read)
    spread, rng = WALKS[read.walk], np.random.default_rng(SEED)
    extents = decode(layout, [units], np.zeros(1, np.int64), 0, Reading(spread))
    turns = np.unique(extents.owner) if spread == "head_turn" else [None]
    parts = []
    for head in turns:
        each = extents if head is None else extents.of(extents.owner == head)
        dealt = deal(each, device.dma.engines, "slice", device.dma.request)
        parts.append(_apart(dealt, device.dma.request, read.drift, rng) if read.drift else dealt)
    return joined(parts)


def _laid_out(device: Device, read: LayoutRead) -> tuple[KvLayout, Units]:
    """One layer, and where a sequence's tokens lie in it."""
    device.memory  # noqa: B018 - raises where it is given
    head_bytes = read.head_dim * NUMBER_BYTES
    row = 2 * read.kv_heads * head_bytes
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


def _apart(dealt: Descriptors, piece: int, drift: float, rng: np.random.Generator) -> Descriptors:
    """Descriptors cut into requests, of which each engine begins somewhere in the first `drift` of
    its own, and ends with what came before."""
    offset, size = cut_into(dealt.size, piece)
    row = np.repeat(np.arange(len(dealt.size)), -(-dealt.size // piece))
    start = dealt.start[row] + offset
    engine, write = dealt.engine[row], dealt.write[row]
    order = []
    for each in np.unique(engine):
        own = np.flatnonzero(engine == each)
        order.append(np.roll(own, -int(rng.integers(0, int(drift * len(own)) + 1))))
    at = np.concatenate(order)
    return Descriptors(engine[at], start[at], size[at], write[at])
