"""The KV that a kernel of decode attention reads when it is measured alone: one layer's, of
sequences of one length, in shuffled blocks or one sequence after another.

So the tables of kernels were measured (`hwmodel.specs.kernel_table`): K and V each in a region of
its own, block by block with all heads of a token together, block ids permuted; or, with `block` 0,
each sequence's tokens in order.
"""

from __future__ import annotations

import numpy as np

from hwmodel.specs.device import Device
from hwmodel.specs.transformer import TransformerSpec
from policies.memory.probe_cache import simulate_once
from policies.memory.traffic import Extents, deal, reading

SEQUENCES, TOKENS = 32, 2048
"""Of a batch whose KV, in one layer, no L2 holds (assumed)."""


def layer_read(
    model: TransformerSpec, sequences: int, tokens: int, block: int, seed: int = 0
) -> Extents:
    """What such a kernel reads of one layer, sequence by sequence, K and V of each in turn."""
    each = model.kv_half_bytes
    piece = min(block, tokens) if block else tokens
    many = -(-tokens // piece)
    units = np.arange(sequences * many)
    if block:
        units = np.random.default_rng(seed).permutation(units)
    start = units.reshape(sequences, 1, many) * piece * each
    region = sequences * many * piece * each
    start = np.concatenate([start, start + region], axis=1)
    size = np.full(start.shape, piece * each)
    size[..., -1] = (tokens - (many - 1) * piece) * each
    owner = np.repeat(np.arange(sequences), 2 * many)
    return Extents(start.ravel(), size.ravel(), np.zeros(start.size, np.bool_), owner)


def read_share(
    device: Device, model: TransformerSpec, block: int, sequences: int = SEQUENCES,
    tokens: int = TOKENS,
) -> float:  # fmt: skip
    """Share of the peak at which such a kernel is simulated to read; given, where the memory's
    is. Keeps what it simulated."""
    if device.given is not None:
        return device.given.efficiency
    assert device.accelerator is not None
    dma = device.accelerator.dma
    extents = layer_read(model, sequences, tokens, block)
    stream = deal(extents, dma.engines, reading(device, model).spread, dma.request)
    return float(simulate_once(device, stream).gbps / device.peak_gbps * device.derate)
