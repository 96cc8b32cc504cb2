"""Groups of layers that keep the KV of as many tokens, of models with sliding windows.

A layer with a window of W tokens attends to the last W of them, itself included; windows may differ
from layer to layer, and layers with the same one are a kind. What it keeps:

- `blocks`: groups of equally many layers, each with a block table of its own over one pool of
  blocks (vLLM's hybrid KV cache: `_get_kv_cache_groups_uniform_page_size`). A group has as many
  layers as the rarest kind, or as the commonest one where that has less than half more (not so in
  0.11, which is not modelled); the groups of a kind may be padded. Groups are in the order of their
  first layer, and the layers of a kind are dealt to its groups in turn.
- `ring`: the last W tokens in a ring buffer of W slots, or as many as are reserved if that is less.
- `full`: every token, as layers without a window.

A slot holds one token in `size` layers, so a request of n tokens takes the sum over the groups of
min(n, W) slots.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np

from hwmodel.specs.transformer import TransformerSpec
from policies.requests.requests import IntArray

WindowKv = Literal["blocks", "ring", "full"]
_ANY = 1 << 40
"""Tokens that fit where every layer has a window: a ring holds a request of any length."""


class AttendedSpan(NamedTuple):
    """Tokens that a chunk of a prefill attends to, reads and writes; means over the layers."""

    pairs: float
    read: float
    written: float


@dataclass(frozen=True)
class KvGroups:
    """See the module. `windows`, of each layer of the model, tokens or None; `size`: layers of a
    group; `kept`, of each group the tokens it keeps, None: all; `place`, of each layer its group
    and its place there."""

    kind: WindowKv
    windows: tuple[int | None, ...]
    size: int
    kept: tuple[int | None, ...]
    place: tuple[tuple[int, int], ...]

    @cached_property
    def near(self) -> dict[int, int]:
        """Groups that keep so many tokens only, the shortest window first."""
        return dict(sorted(Counter(kept for kept in self.kept if kept is not None).items()))

    @cached_property
    def _layers(self) -> dict[int, int]:
        """Layers with a window, by its length."""
        return dict(Counter(window for window in self.windows if window is not None))

    @property
    def kinds(self) -> list[list[int]]:
        """The layers of each kind."""
        return [
            [layer for layer, window in enumerate(self.windows) if window == kind]
            for kind in dict.fromkeys(self.windows)
        ]

    def slots_of(self, tokens: Any) -> Any:
        """Slots that so many tokens take."""
        slots = self.kept.count(None) * tokens
        for window, groups in self.near.items():
            slots = slots + groups * np.minimum(tokens, window)
        return slots

    def tokens_in(self, slots: Any) -> Any:
        """The most tokens that take no more than these slots."""
        taking, full = len(self.kept), 0  # groups that take a slot a token, slots of the others
        tokens = slots // taking
        for window, groups in self.near.items():
            taking, full = taking - groups, full + groups * window
            longer = (slots - full) // taking if taking else _ANY
            tokens = np.where(tokens < window, tokens, longer)
        return tokens

    def read(self, lengths: IntArray) -> float:
        """Stored tokens that a decode step of requests of these lengths reads; mean over the
        layers."""
        return self._mean(
            int(lengths.sum()), lambda window: int(np.minimum(lengths, window - 1).sum())
        )

    def verified(self, lengths: IntArray, rows: IntArray) -> float:
        """Of steps of `rows` tokens each behind these lengths, all but the first rows and the
        tokens that they attend to, themselves included; mean over the layers. int64 (n,) each."""
        further = rows - 1

        def near(window: int) -> int:
            growing = np.clip(window - 1 - lengths, 0, further)  # rows that see all before them
            seen = growing * lengths + growing * (growing + 3) // 2 + (further - growing) * window
            return int(seen.sum())

        full = further * lengths + further * (further + 3) // 2
        return self._mean(int(full.sum()), near)

    def copied(self, tokens: int) -> float:
        """Tokens that a request of so many keeps in its run; mean over the layers."""
        return float(self.slots_of(tokens)) * self.size / len(self.windows)

    def span(self, start: int, tokens: int) -> AttendedSpan:
        """Of a chunk of `tokens` after `start` that are stored."""

        def pairs(window: int) -> int:
            growing = min(max(window - start, 0), tokens)  # tokens that see all before them
            return growing * start + growing * (growing + 1) // 2 + (tokens - growing) * window

        ring = self.kind == "ring"
        return AttendedSpan(
            self._mean(tokens * start + tokens * (tokens + 1) // 2, pairs),
            self._mean(start, lambda window: min(start, window - 1)),
            self._mean(tokens, lambda window: min(tokens, window) if ring else tokens),
        )

    def _mean(self, full: int, near: Callable[[int], int]) -> float:
        """Over layers without a window and with each."""
        total = self.windows.count(None) * full
        total += sum(layers * near(window) for window, layers in self._layers.items())
        return total / len(self.windows)


def kv_groups(model: TransformerSpec, kind: WindowKv) -> KvGroups | None:
    """The groups of a model's layers; None where none has a window."""
    if model.window is None:
        return None
    windows = tuple(model.window.of(layer) for layer in range(model.layers))
    if not any(windows):
        return None
    whole = tuple((0, layer) for layer in range(model.layers))
    if kind == "full":
        return KvGroups(kind, windows, model.layers, (None,), whole)
    counts = Counter(windows)
    size = math.gcd(*counts.values())
    if kind == "blocks":
        size, most = min(counts.values()), max(counts.values())
        size = most if most < 1.5 * size else size
    kept: list[int | None] = []
    place = {}
    for window, count in counts.items():
        many = -(-count // size)
        layers = [layer for layer in range(model.layers) if windows[layer] == window]
        for nth, layer in enumerate(layers):
            place[layer] = (len(kept) + nth % many, nth // many)
        kept += [window] * many
    places = tuple(place[layer] for layer in range(model.layers))
    return KvGroups(kind, windows, size, tuple(kept), places)
