"""Where the K and V of a token slot lie in device memory.

The KV region starts above the weights and is cut into layers, each layer into its K half and its V
half, each half into the same `slots` token slots:

    half(layer, h) = base + (2 layer + h) x slots x half_bytes        h = 0 for K, 1 for V
    slot t of a half starts at half(layer, h) + t x half_bytes

where half_bytes is the K of one token in one layer.

That is vLLM's (2, num_blocks, block, heads, dim) a layer, and a contiguous reservation in the same
formula. `order` says what happens inside an allocation unit (a block, or a whole reservation):

- `layer_kv_token`: tokens one after another with all their heads; units that touch join.
- `layer_kv_block_head`: heads outermost in the unit, (2, num_blocks, heads, block, dim): every
  head of a unit is an extent of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from hwmodel.description import DescriptionError
from hwmodel.device import Device
from hwmodel.transformer import TransformerSpec
from policies.requests import IntArray

KvOrder = Literal["layer_kv_token", "layer_kv_block_head"]

KV_ALIGN_BYTES = 2 << 20
"""The KV region starts at a multiple of this (assumed: a 2 MiB page of device memory)."""
SLOT_ALIGN_TOKENS = 64
"""The number of slots is a multiple of this (assumed), so that blocks of up to 64 tokens tile
it."""


class Units(NamedTuple):
    """Allocation units of one request in token order, int64 (n,): first slot, stored tokens, size
    in slots."""

    start: IntArray
    tokens: IntArray
    size: IntArray


class Extents(NamedTuple):
    """Physical byte runs in reading order, int64 (n,)."""

    start: IntArray
    size: IntArray


@dataclass(frozen=True)
class KvLayout:
    """Addresses of the KV region (see the module). Sizes in bytes, `slots` in tokens."""

    base: int
    slots: int
    layers: int
    kv_heads: int
    head_bytes: int
    order: KvOrder = "layer_kv_token"

    @property
    def half_bytes(self) -> int:
        """K (or V) of one token in one layer."""
        return self.kv_heads * self.head_bytes

    @property
    def token_bytes(self) -> int:
        """K and V of one token in all layers."""
        return 2 * self.layers * self.half_bytes

    @property
    def bytes(self) -> int:
        """Size of the KV region."""
        return self.slots * self.token_bytes

    def half_start(self, layer: int, half: int) -> int:
        """Address of slot 0 of a layer's K (half 0) or V (half 1)."""
        return self.base + (2 * layer + half) * self.slots * self.half_bytes

    def extents(
        self, units: Units, layer: int, half: int, first: int = 0, last: int | None = None
    ) -> Extents:
        """Byte runs that hold tokens [first, last) of a request in one layer's K or V."""
        before = np.cumsum(units.tokens) - units.tokens
        low = np.clip(first - before, 0, units.tokens)
        high = units.tokens if last is None else np.clip(last - before, 0, units.tokens)
        held = high > low
        start, size, low, count = units.start[held], units.size[held], low[held], (high - low)[held]
        origin = self.half_start(layer, half)
        if self.order == "layer_kv_token":
            return _joined(origin + (start + low) * self.half_bytes, count * self.half_bytes)
        head = np.arange(self.kv_heads, dtype=np.int64)
        places = (start * self.kv_heads)[:, None] + head * size[:, None] + low[:, None]
        counts = np.repeat(count, self.kv_heads)
        return Extents(origin + places.ravel() * self.head_bytes, counts * self.head_bytes)


def _joined(start: IntArray, size: IntArray) -> Extents:
    """Runs that touch in order become one."""
    if not len(start):
        return Extents(start, size)
    first = np.flatnonzero(np.concatenate(([True], start[1:] != (start + size)[:-1])))
    return Extents(start[first], np.add.reduceat(size, first))


def kv_layout(
    device: Device,
    model: TransformerSpec,
    gpu_memory_utilization: float = 0.9,
    order: KvOrder = "layer_kv_token",
) -> KvLayout:
    """The KV region of a device that holds a model: its share of the capacity less the weights.

    Raises DescriptionError if the weights leave no room for `SLOT_ALIGN_TOKENS` tokens.
    """
    base = -(-model.weight_bytes // KV_ALIGN_BYTES) * KV_ALIGN_BYTES
    budget = int(device.capacity_bytes * gpu_memory_utilization)
    slots = max(budget - base, 0) // model.kv_token_bytes
    slots -= slots % SLOT_ALIGN_TOKENS
    if not slots:
        raise DescriptionError(
            f"{device.name} is too small for {model.name}: the weights take {model.weight_bytes} B "
            f"of {budget} B ({gpu_memory_utilization:g} of {device.capacity_bytes} B), and nothing "
            f"is left for the KV of {SLOT_ALIGN_TOKENS} tokens, {model.kv_token_bytes} B each"
        )
    return KvLayout(base, slots, model.layers, model.kv_heads, model.kv_head_bytes, order)
