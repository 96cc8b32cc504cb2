"""What a KV format keeps beside the numbers of each head: where it lies, and how long it is.

Sparse entries of a head follow one another, token behind token, so that what a token has varies in
length and has no address of its own but through the table of lengths before it. A unit has room for
them in proportion to its slots, in a region above all dense numbers (`apart`: pages of their own)
or behind its own dense numbers (`behind`). Where the heads of a token lie together in it, so do
their entries. Scales of K (or V) of all heads have a region above both, a record a token.

Lengths are drawn: each number is an outlier with the same probability, apart from the others (a
binomial law, assumed). Draws come from one seeded table, which each stream (a layer's K or V of a
head) enters at its own place; tokens at the same place of a unit have the same length, so that a
unit that is copied keeps it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from hwmodel.description.description import DescriptionError
from hwmodel.specs.number_format import number_format
from hwmodel.specs.transformer import TransformerSpec
from policies.requests.requests import IntArray

Indices = dict[str, IntArray | int]
"""An index of each dimension, of the model or of each of several units."""
Areas = Callable[[IntArray, IntArray, Indices], tuple[IntArray, int]]
"""(first byte, bytes a token) of units in a region, by first slot, size and indices."""
_TABLE = 1 << 16
"""Draws of the table of lengths; longer streams begin it again."""
_STRIDE = 40503
"""From one stream's place in the table to the next; odd, so that they are spread over it."""
_SIGMAS, _UNIT = 4.0, 64
"""Room for sparse entries: what _UNIT tokens have, and so many standard deviations (assumed: one
stream in 30,000 fills it)."""


class Parts(NamedTuple):
    """Parts of units in reading order, int64 (n,): which tokens, of K or V or both (None), of one
    KV head or of all (None). Runs of parts of different `group`, which never decreases, stay apart.
    """

    start: IntArray
    """First slot of the unit."""
    size: IntArray
    """Its slots."""
    low: IntArray
    """First of the tokens, counted from the unit's first."""
    tokens: IntArray
    half: IntArray | int | None
    head: IntArray | int | None
    group: IntArray


class Shape(NamedTuple):
    """Of a layout: its order, and the sizes of dimensions and records."""

    dims: tuple[str, ...]
    halves: int
    kv_heads: int
    head_bytes: int
    records: list[tuple[int, int]]


class Apart(NamedTuple):
    """Of one token, bytes: `room` for the sparse entries of a head, `scales` of K (or V) of all
    heads."""

    share: float
    entry_bytes: int
    head_dim: int
    room: int
    scales: int
    behind: bool

    def token_bytes(self, kv_heads: int) -> int:
        """Of K (or V)."""
        return kv_heads * self.room + self.scales

    def records(self, kv_heads: int, head_bytes: int) -> list[tuple[int, int]]:
        """(heads, bytes of each) of a token in each region: dense numbers, sparse entries unless
        they are behind those, and scales."""
        if self.behind:
            return [(kv_heads, head_bytes + self.room), (1, self.scales)]
        return [(kv_heads, head_bytes), (kv_heads, self.room), (1, self.scales)]

    def runs(
        self, shape: Shape, areas: list[Areas], parts: Parts, layer: int
    ) -> tuple[IntArray, IntArray, IntArray]:
        """(start, bytes, group) of parts in one layer, none empty: of each unit and stream the
        dense numbers, then the sparse entries; after those of a group its scales. areas: of
        the regions of `records`."""
        row = _streams(shape, parts)
        first, count, size = parts.low[row.part], parts.tokens[row.part], parts.size[row.part]
        unit = parts.start[row.part]
        chosen: Indices = {"layer": layer, "kv": row.half, "head": row.head}
        at, record = areas[0](unit, size, chosen)
        together = record // shape.records[0][1]  # heads of a token in the stream
        each = together * shape.head_bytes
        entries = at + size * each if self.behind else areas[1](unit, size, chosen)[0]
        stream = (layer * shape.halves + row.half) * shape.kv_heads + row.head
        before = self._bytes(stream, first, together)
        length = self._bytes(stream, first + count, together) - before
        start = np.stack((at + first * each, entries + before), 1).ravel()
        many = np.stack((count * each, length), 1).ravel()
        group = np.repeat(parts.group[row.part], 2)
        if self.scales:
            of = row.scaled
            chosen = {"layer": layer, "kv": row.half[of], "head": 0}
            at, each = areas[-1](unit[of], size[of], chosen)
            start = np.concatenate((start, at + first[of] * each))
            many = np.concatenate((many, count[of] * each))
            group = np.concatenate((group, parts.group[row.part][of]))
        held = np.flatnonzero(many)
        held = held[np.argsort(group[held], kind="stable")]
        return start[held], many[held], group[held]

    def _bytes(self, stream: IntArray, tokens: IntArray, together: int) -> IntArray:
        """Of the sparse entries of the first tokens of a unit in these streams; never more than
        their room."""
        if not self.share:
            return np.zeros(len(tokens), np.int64)
        table = lengths(together * self.head_dim, self.share)
        place = stream * _STRIDE % _TABLE
        rounds, rest = np.divmod(place + tokens, _TABLE)
        outliers = rounds * table[-1] + table[rest] - table[place]
        return np.minimum(outliers * self.entry_bytes, tokens * together * self.room)


@lru_cache(maxsize=16)
def lengths(numbers: int, share: float) -> IntArray:
    """Outliers in the first n tokens, int64 (n = 0 to _TABLE,): of so many numbers a token each is
    one with probability `share`."""
    rng = np.random.default_rng([*b"policies.outliers", numbers])
    drawn = rng.binomial(numbers, share, _TABLE)
    return np.concatenate(([0], np.cumsum(drawn, dtype=np.int64)))


def apart(model: TransformerSpec) -> Apart | None:
    """Of the format that a model's KV is stored in; None: all lies inline."""
    structure = number_format(model.kv).kv
    if structure is None:
        return None
    share, entry = 0.0, 0
    if structure.outliers is not None:
        share, entry = structure.outliers.share, structure.outliers.entry_bits // 8
    deviation = math.sqrt(model.head_dim * share * (1 - share) / _UNIT)
    room = math.ceil(entry * (model.head_dim * share + _SIGMAS * deviation))
    scales = math.ceil(structure.scale_bits(model.kv_heads * model.head_dim) / 8)
    return Apart(share, entry, model.head_dim, room, scales, structure.sparse == "behind")


class _Streams(NamedTuple):
    """Streams of parts, int64 (n,): the part, K or V, the first head. `scaled`: those that stand
    for the scales of K (or V) of all heads."""

    part: IntArray
    half: IntArray
    head: IntArray
    scaled: IntArray


def _streams(shape: Shape, parts: Parts) -> _Streams:
    """One for each head and half that has an area of its own, in the layout's order."""
    dims = shape.dims
    unit, token = dims.index("unit"), dims.index("token")
    inside = set(dims[token + 1 :])
    split = {"layer"} | {
        dim for dim, of in (("kv", parts.half), ("head", parts.head)) if of is not None
    }
    if mixed := inside & split:
        raise DescriptionError(
            f"kv_layout: {min(mixed)} after token, and tokens of this KV format vary in length, so "
            "that no part of them is read alone; expected it before token"
        )
    index = {
        "kv": _choices(parts.half, shape.halves, "kv" in inside),
        "head": _choices(parts.head, shape.kv_heads, "head" in inside),
    }
    every = {"part": np.arange(len(parts.start))} | {
        dim: np.arange(len(found)) for dim, found in index.items() if found is not None
    }
    # planes outermost, then the parts, then what is cut inside the unit
    outer = [dim for dim in dims[:unit] if dim in every]
    inner = [dim for dim in dims[unit + 1 : token] if dim in every]
    after = [dim for dim in dims[token + 1 :] if dim in every]
    order = [*outer, "part", *inner, *after]
    grid = np.meshgrid(*(every[dim] for dim in order), indexing="ij")
    flat = {dim: axis.ravel() for dim, axis in zip(order, grid, strict=True)}
    part = flat["part"]
    by = np.argsort(parts.group[part], kind="stable")
    for dim, given in (("kv", parts.half), ("head", parts.head)):
        if given is not None:
            flat[dim] = np.broadcast_to(np.asarray(given), len(every["part"]))[part]
    head = flat["head"][by]
    return _Streams(part[by], flat["kv"][by], head, np.flatnonzero(head == 0))


def _choices(chosen: IntArray | int | None, many: int, bundled: bool) -> IntArray | None:
    """The indices of a dimension that are expanded: all, or one where the record holds them
    together; None where the parts say which."""
    if chosen is not None:
        return None
    return np.arange(1 if bundled else many)
