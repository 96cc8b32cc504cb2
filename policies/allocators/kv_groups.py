"""Groups of layers that keep the KV of as many tokens, of models with sliding windows.

A layer with a window of W tokens attends to the last W of them, itself included. What it keeps:

- `blocks`: groups of equally many layers, each with a block table of its own over one pool of
  blocks (vLLM's hybrid KV cache: `_get_kv_cache_groups_uniform_page_size`). A group has as many
  layers as the rarer kind, or as the commoner one where that has less than half more (not so in
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
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from hwmodel.specs.transformer import TransformerSpec
from policies.requests.requests import IntArray

WindowKv = Literal["blocks", "ring", "full"]
_ANY = 1 << 40
"""Tokens that fit where every layer has a window: a ring holds a request of any length."""


class Span(NamedTuple):
    """Tokens that a chunk of a prefill attends to, reads and writes; means over the layers."""

    pairs: float
    read: float
    written: float


@dataclass(frozen=True)
class KvGroups:
    """See the module. `windows`, of each layer of the model, tokens or None; `place`, of each layer
    its group and its place there; `kept`, of each group the tokens it keeps, None: all."""

    kind: WindowKv
    window: int
    windows: tuple[int | None, ...]
    size: int
    kept: tuple[int | None, ...]
    place: tuple[tuple[int, int], ...]

    @property
    def windowed(self) -> int:
        """Groups that keep a window only."""
        return len(self.kept) - self.kept.count(None)

    @property
    def kinds(self) -> list[list[int]]:
        """The layers of each kind."""
        return [
            [layer for layer, window in enumerate(self.windows) if window == kind]
            for kind in dict.fromkeys(self.windows)
        ]

    def slots_of(self, tokens: Any) -> Any:
        """Slots that so many tokens take."""
        return self.kept.count(None) * tokens + self.windowed * np.minimum(tokens, self.window)

    def tokens_in(self, slots: Any) -> Any:
        """The most tokens that take no more than these slots."""
        short = slots // len(self.kept)
        full = self.kept.count(None)
        long = (slots - self.windowed * self.window) // full if full else _ANY
        return np.where(short < self.window, short, long)

    def read(self, lengths: IntArray) -> float:
        """Stored tokens that a decode step of requests of these lengths reads; mean over the
        layers."""
        return self._mean(int(lengths.sum()), int(np.minimum(lengths, self.window - 1).sum()))

    def verified(self, lengths: IntArray, rows: IntArray) -> float:
        """Of steps of `rows` tokens each behind these lengths, all but the first rows and the
        tokens that they attend to, themselves included; mean over the layers. int64 (n,) each."""
        further = rows - 1
        growing = np.clip(self.window - 1 - lengths, 0, further)  # rows that see all before them
        near = growing * lengths + growing * (growing + 3) // 2 + (further - growing) * self.window
        full = further * lengths + further * (further + 3) // 2
        return self._mean(int(full.sum()), int(near.sum()))

    def copied(self, tokens: int) -> float:
        """Tokens that a request of so many keeps in its run; mean over the layers."""
        return float(self.slots_of(tokens)) * self.size / len(self.windows)

    def span(self, start: int, tokens: int) -> Span:
        """Of a chunk of `tokens` after `start` that are stored."""
        growing = min(max(self.window - start, 0), tokens)  # tokens that see all before them
        near = growing * start + growing * (growing + 1) // 2 + (tokens - growing) * self.window
        written = min(tokens, self.window) if self.kind == "ring" else tokens
        return Span(
            self._mean(tokens * start + tokens * (tokens + 1) // 2, near),
            self._mean(start, min(start, self.window - 1)),
            self._mean(tokens, written),
        )

    def _mean(self, full: int, near: int) -> float:
        """Over layers without a window and with it."""
        without = self.windows.count(None)
        return (without * full + (len(self.windows) - without) * near) / len(self.windows)


def kv_groups(model: TransformerSpec, kind: WindowKv) -> KvGroups | None:
    """The groups of a model's layers; None where none has a window."""
    if model.window is None or "window" not in model.window.pattern[: model.layers]:
        return None
    windows = tuple(model.window.of(layer) for layer in range(model.layers))
    whole = tuple((0, layer) for layer in range(model.layers))
    if kind == "full":
        return KvGroups(kind, model.window.tokens, windows, model.layers, (None,), whole)
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
    return KvGroups(kind, model.window.tokens, windows, size, tuple(kept), places)
