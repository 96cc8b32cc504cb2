"""The pieces in which KV moves between two block pools: contiguous at both ends.

Each end has an order of dimensions (`hwmodel.specs.kv_order`), a block, KV heads, and a table of
block ids. A piece grows from the numbers of one head by every dimension that is the next in memory
at both ends. What is left is a region for each of its indices: layers, K and V, heads. Along the
tokens a region's pieces are one where the next lies behind at both ends, that is, where neither
table breaks. So descriptors are regions x runs, exact for any two layouts, blocks and tables, but
for what joins at the corners: where both ends have the same dimensions innermost in another order,
the last piece of them and the first of the next index lie behind each other at both ends.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hwmodel.description.description import DescriptionError
from hwmodel.specs.kv_order import LAYOUTS, Dim, Dims
from hwmodel.specs.link import Merging
from policies.requests.requests import IntArray

HOST_LAYOUTS: dict[str, Dims] = {
    "layer_first": ("kv", "layer", "unit", "token", "head"),
    "page_first": ("kv", "unit", "token", "layer", "head"),
    "page_first_direct": ("kv", "unit", "layer", "token", "head"),
    "page_unified": ("unit", "layer", "kv", "token", "head"),
}
"""Layouts of a host's pool by SGLang's names (HiCache): [layer, token, item],
[token, layer, item], [page, layer, token, item] and [page, layer, K or V, token, item]."""
KNOWN_LAYOUTS = LAYOUTS | HOST_LAYOUTS


@dataclass(frozen=True)
class End:
    """One end of a transfer."""

    dims: Dims
    block: int
    """Tokens in a block."""
    table: IntArray
    """Block ids in token order, int64 (blocks,)."""
    heads: int
    """KV heads that this end holds."""
    first_head: int = 0
    """The first of them that moves."""

    def strides(self, layers: int, halves: int, head_bytes: int) -> dict[Dim, int]:
        """Bytes from one index of a dimension to the next; the pool has a block more than the
        table names."""
        counts: dict[Dim, int] = {
            "layer": layers, "kv": halves, "unit": int(self.table.max()) + 2,
            "head": self.heads, "token": self.block,
        }  # fmt: skip
        found: dict[Dim, int] = {}
        size = head_bytes
        for dim in reversed(self.dims):
            found[dim] = size
            size *= counts[dim]
        return found


class Pieces(NamedTuple):
    """Descriptors of a transfer by size, int64 (n,) each, and how they come about."""

    sizes: IntArray
    """Bytes."""
    counts: IntArray
    regions: int
    """Indices of the dimensions that no piece spans: layers, K and V, heads, ..."""
    runs: int
    """Pieces of each region."""

    @property
    def descriptors(self) -> int:
        return int(self.counts.sum())

    @property
    def bytes(self) -> int:
        return int((self.sizes * self.counts).sum())


def pieces(
    source: End, target: End, *, tokens: int, heads: int, layers: int, halves: int,
    head_bytes: int, merges: Merging = "none", largest: int | None = None, skip: int = 0,
    by_layer: bool = False,
) -> Pieces:  # fmt: skip
    """The descriptors that move `tokens` tokens (rounded up to the smaller block, as whole blocks
    are sent) of `heads` KV heads and all layers from one end to the other, but for the first
    `skip`, a multiple of the smaller block.

    by_layer: each layer goes as it is computed, so no piece spans two.
    halves: K and V, or 1 of a latent. head_bytes: of K (or V) of one token and head. merges and
    largest as of a link. Raises DescriptionError where a table is too short.
    """
    step = math.gcd(source.block, target.block)
    chunks = -(-tokens // step)
    near, far = (end.strides(layers, halves, head_bytes) for end in (source, target))
    piece, left = head_bytes, {"layer": layers, "kv": halves, "head": heads, "token": step}
    while grown := [
        dim
        for dim, many in left.items()
        if many == 1 or (near[dim] == far[dim] == piece and not (by_layer and dim == "layer"))  # type: ignore[index]
    ]:
        for dim in grown:
            piece *= left.pop(dim)
            if piece > head_bytes:
                break  # the next dimension begins behind it
    regions = math.prod(left.values())
    joined = _joined(left, near, far, piece, by_layer)
    places = [
        _places(end, strides, range(skip // step, chunks), step)
        for end, strides in ((source, near), (target, far))
    ]  # fmt: skip
    if len(joined) < regions:  # then no piece lies behind that of another chunk
        runs = len(places[0])
        lengths, times = np.tile(joined * piece, runs), 1
    else:
        lengths, times = _runs(places[0], places[1], piece, merges) * piece, regions
        runs = len(lengths)
    if largest is not None:
        whole, rest = np.divmod(lengths, largest)
        lengths = np.concatenate((np.full(int(whole.sum()), largest), rest[rest > 0]))
    sizes, counts = np.unique(lengths, return_counts=True)
    return Pieces(sizes.astype(np.int64), counts * times, regions, runs)


def _joined(
    left: dict[str, int], near: dict[Dim, int], far: dict[Dim, int], piece: int, by_layer: bool
) -> IntArray:
    """Of the regions of a chunk, one for each index of the dimensions that are `left`, in the
    source's order: how many lie behind each other at both ends, of each such run. By where the
    count through the dimensions carries: those inside start again."""
    dims = sorted(left, key=lambda dim: near[dim])  # type: ignore[index]
    joins, back = [], [0, 0]
    for dim in dims:
        steps = near[dim] - back[0], far[dim] - back[1]  # type: ignore[index]
        joins.append(steps == (piece, piece) and not (by_layer and dim == "layer"))
        back = [b + (left[dim] - 1) * end[dim] for b, end in zip(back, (near, far), strict=True)]  # type: ignore[index]
    regions = math.prod(left.values())
    if not any(joins):
        return np.ones(regions, np.int64)
    number, breaks, inside = np.arange(1, regions), np.zeros(regions - 1, bool), 1
    for dim, join in zip(dims, joins, strict=True):
        breaks[number % inside == 0] = not join  # the outermost that carries has the last word
        inside *= left[dim]
    return np.diff([0, *(np.flatnonzero(breaks) + 1), regions])


def _places(end: End, strides: dict[Dim, int], chunks: range, step: int) -> IntArray:
    """Address, in a region, of each chunk of `step` tokens."""
    token = np.arange(chunks.start, chunks.stop, dtype=np.int64) * step
    number = token // end.block
    if number[-1] >= len(end.table):
        raise DescriptionError(
            f"{(number[-1] + 1):,} blocks of {end.block} tokens move; the table has"
            f" {len(end.table):,}"
        )
    return end.table[number] * strides["unit"] + token % end.block * strides["token"]


def _runs(near: IntArray, far: IntArray, piece: int, merges: Merging) -> IntArray:
    """Chunks of each run, where neighbours merge."""
    if merges == "none":
        return np.ones(len(near), np.int64)
    if merges == "any_order":
        order = np.argsort(near, kind="stable")
        near, far = near[order], far[order]
    breaks = np.flatnonzero((np.diff(near) != piece) | (np.diff(far) != piece)) + 1
    edges = np.concatenate(([0], breaks, [len(near)]))
    return np.diff(edges)


def pages(kind: str, blocks: int, seed: int = 0) -> IntArray:
    """A table of `blocks` block ids, as a pool gives them.

    `fresh`: in order, as from a pool never used; `aged`: anywhere in a pool four times as large, as
    after many requests; `descending`: as freed tail first and taken again; a number: runs of so
    many blocks, anywhere. Raises DescriptionError for anything else.
    """
    if kind == "fresh":
        return np.arange(blocks, dtype=np.int64)
    if kind == "descending":
        return np.arange(blocks, dtype=np.int64)[::-1].copy()
    run = 1 if kind == "aged" else int(kind) if kind.isdecimal() and int(kind) else 0
    if not run:
        raise DescriptionError(
            f"expected fresh, aged, descending or the blocks of a run; got {kind!r}"
        )
    count = -(-blocks // run)
    first = np.random.default_rng(seed).permutation(4 * count)[:count] * (run + 1)
    return (first[:, None] + np.arange(run)).ravel()[:blocks].astype(np.int64)
