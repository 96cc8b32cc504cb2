"""The KV that a kernel of decode attention reads when it is measured alone: one layer's, of
sequences of one length, in shuffled blocks or one sequence after another.

So the tables of kernels were measured (`hwmodel.specs.kernel_table`): K and V each in a region of
its own, block by block with all heads of a token together, block ids permuted; or, with `block` 0,
each sequence's tokens in order.
"""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
from pydantic import Field

from hwmodel.description.description import Strict, checked
from hwmodel.specs.device import Device
from policies.memory.dealing import deal
from policies.memory.probe_cache import simulate_once
from policies.memory.traffic import Extents

SEQUENCES, TOKENS = 32, 2048
"""Of a batch whose KV, in one layer, no L2 holds (assumed)."""
WARMUP_NS, MEASURE_NS = 15e3, 45e3
"""Of the window of a read without its begin and its end (assumed)."""


class AttentionRead(Strict):
    """Decode attention measured alone, of a layer of sequences of one length in 16 bits."""

    sequences: Annotated[int, Field(ge=1)]
    """That are read."""
    tokens: Annotated[int, Field(ge=1)]
    """Of each."""
    since: Annotated[int, Field(ge=1)]
    """Of the shorter read beyond which the rate is: the kernel's own time drops out."""
    kv_heads: Annotated[int, Field(ge=1)]
    """Of a layer."""
    head_dim: Annotated[int, Field(ge=1)] = 128
    """Of a head."""
    block: Annotated[int, Field(ge=0)]
    """Tokens of a shuffled block; 0: each sequence's tokens in order."""
    against: Annotated[int, Field(ge=0)] | None = None
    """Such a block, of which the figure is a share, in x."""

    @checked
    def _longer(self) -> None:
        if self.since >= self.tokens:
            raise ValueError("since: expected a shorter read")


def attention_rate(device: Device, read: AttentionRead) -> float:
    """GB/s that reach such a kernel beyond its begin and its end, or the share in x of the rate of
    another block."""
    half_bytes = 2 * read.kv_heads * read.head_dim

    def rate(block: int) -> float:
        window = WARMUP_NS, MEASURE_NS
        share = read_share(device, half_bytes, block, read.sequences, read.tokens, window)
        return share * device.peak_gbps

    return rate(read.block) / (1 if read.against is None else rate(read.against))


def layer_read(half_bytes: int, sequences: int, tokens: int, block: int, seed: int = 0) -> Extents:
    """What such a kernel reads of one layer, sequence by sequence, K and V of each in turn;
    half_bytes: of a token's K, or V."""
    piece = min(block, tokens) if block else tokens
    many = -(-tokens // piece)
    units = np.arange(sequences * many)
    if block:
        units = np.random.default_rng(seed).permutation(units)
    start = units.reshape(sequences, 1, many) * piece * half_bytes
    region = sequences * many * piece * half_bytes
    start = np.concatenate([start, start + region], axis=1)
    size = np.full(start.shape, piece * half_bytes)
    size[..., -1] = (tokens - (many - 1) * piece) * half_bytes
    owner = np.repeat(np.arange(sequences), 2 * many)
    return Extents(start.ravel(), size.ravel(), np.zeros(start.size, np.bool_), owner)


def read_share(
    device: Device, half_bytes: int, block: int, sequences: int = SEQUENCES, tokens: int = TOKENS,
    window: tuple[float, float] = (0.0, math.inf),
) -> float:  # fmt: skip
    """Share of the peak at which such a kernel is simulated to read, in a window (what is left out
    and what is measured, ns) or in all; given, where the memory's is. Keeps what it simulated."""
    if device.given is not None:
        return device.given.efficiency
    assert device.accelerator is not None
    dma, work = device.accelerator.dma, device.accelerator.work
    extents = layer_read(half_bytes, sequences, tokens, block)
    stream = deal(extents, dma.engines, work.spread, dma.request, work.drift)
    warmup_ns, measure_ns = window
    found = simulate_once(device, stream, warmup_ns=warmup_ns, measure_ns=measure_ns)
    return float(found.gbps / device.peak_gbps * device.derate)
