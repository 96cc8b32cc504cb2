"""A transfer of a request's KV from the cards of one server to those of another, or to a host.

Tensor-parallel ranks move the heads that they share, each over a link of its own; where several
hold the same heads, as with a latent, they take turns as sources. The transfer ends with the
busiest rank. A model's chosen-token indexers, if any, are regions of their own beside the KV.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import numpy as np

from hwmodel.description.description import DescriptionError
from hwmodel.specs.kv_order import Dims
from hwmodel.specs.link import LinkCost, LinkSpec
from hwmodel.specs.transformer import TransformerSpec
from policies.allocators.kv_apart import apart
from policies.requests.requests import IntArray
from policies.transfers.pieces import End, Pieces, pieces


@dataclass(frozen=True)
class TransferEnd:
    """One end: how its cards keep KV. `table` (blocks,) int64: block ids in token order, the same
    on each card."""

    dims: Dims
    block: int
    table: IntArray
    cards: int = 1


@dataclass(frozen=True)
class Index:
    """Layers that keep an index for choosing tokens, and its bytes a token."""

    layers: int
    bytes: int


@dataclass(frozen=True)
class Moved:
    """What the busiest rank moves, and what that takes."""

    pieces: Pieces
    cost: LinkCost
    ranks: int
    """Ranks that post."""

    @property
    def gbps(self) -> float:
        """GB/s of a rank over the whole transfer."""
        return self.pieces.bytes / self.cost.total_ns


def _split(model: TransformerSpec, cards: int) -> tuple[int, int]:
    """(KV heads of a card, cards that hold the same ones)."""
    heads = model.kv_heads
    if heads % cards and cards % heads:
        raise DescriptionError(f"{cards} cards cannot split {model.name}: {heads} KV heads")
    return max(heads // cards, 1), max(cards // heads, 1)


def together(one: Pieces, other: Pieces) -> Pieces:
    """The descriptors of both."""
    sizes, which = np.unique(np.concatenate((one.sizes, other.sizes)), return_inverse=True)
    counts = np.zeros(len(sizes), np.int64)
    np.add.at(counts, which, np.concatenate((one.counts, other.counts)))
    return Pieces(sizes, counts, one.regions + other.regions, max(one.runs, other.runs))


def transfer(
    link: LinkSpec, model: TransformerSpec, tokens: int, source: TransferEnd, target: TransferEnd,
    index: Index | None = None, both_ways: bool = False, skip: int = 0,
    by_layer: bool = False,
) -> Moved:  # fmt: skip
    """Move the first `tokens` tokens of a request, but for the first `skip`. Whole blocks move; a
    target with more cards than KV heads gets each head as often as it holds it.

    by_layer: as of `pieces`. index: of all cards, whole on each. both_ways: as much goes the other
    way at the same time.
    What a format keeps beside the numbers of a head moves as well: sparse entries with all their
    room, since whole blocks do, and scales. Raises DescriptionError where the cards do not divide
    the heads, a table is too short, or the model's layers have windows (`legs` moves those).
    """
    if model.window is not None:
        raise DescriptionError(f"{model.name}: layers with windows have block tables of their own")
    by_rank: dict[int, list[Pieces]] = {}
    (held, copies), (wanted, again) = _split(model, source.cards), _split(model, target.cards)
    move = _mover(link, tokens, source, target, skip, by_layer)
    for rank in range(target.cards):
        first = rank // again * wanted
        for sender in range(source.cards // copies):
            low = max(first, sender * held)
            shared = min(first + wanted, (sender + 1) * held) - low
            if shared <= 0:
                continue
            ends = (held, low - sender * held), (wanted, low - first)
            by_rank.setdefault(sender * copies + rank % copies, []).extend(
                move(*(ends if many == shared else ((1, 0), (1, 0))), many, model.kv_layers,
                     model.attention.halves, size)
                for many, size in _records(model, shared)
            )  # fmt: skip
        if index is not None:
            found = move((1, 0), (1, 0), 1, index.layers, 1, index.bytes)
            by_rank.setdefault(rank % source.cards, []).append(found)
    sent = [reduce(together, found) for found in by_rank.values()]
    costs = [link.cost(each.sizes, each.counts, both_ways) for each in sent]
    slowest = max(range(len(sent)), key=lambda rank: costs[rank].total_ns)
    return Moved(sent[slowest], costs[slowest], len(sent))


def _records(model: TransformerSpec, heads: int) -> list[tuple[int, int]]:
    """(heads, bytes of each) of a token in each region, of so many KV heads."""
    beside = apart(model.model_copy(update={"kv_heads": heads}))
    if beside is None:
        return [(heads, model.kv_head_bytes)]
    each = beside.records(heads, model.kv_head_bytes)
    return [(many, size) for many, size in each if size]


class Leg(NamedTuple):
    """A part of a transfer: of layers with one table at each end."""

    model: TransformerSpec
    """With these layers only."""
    tokens: int
    source: TransferEnd
    target: TransferEnd
    skip: int = 0
    indexer: Index | None = None


def states(model: TransformerSpec) -> Pieces | None:
    """What the states of a sequence move as, of layers that have one: whole, a piece each. model:
    the shard of a card."""
    found = [(kind.state.bytes(), many) for kind, many in model.kinds.items() if kind.state]
    if not found:
        return None
    sizes, counts = (np.array(column, np.int64) for column in zip(*found, strict=True))
    return Pieces(sizes, counts, int(counts.sum()), 1)


def transfer_legs(
    link: LinkSpec, legs: Sequence[Leg], both_ways: bool = False, by_layer: bool = False,
    beside: Pieces | None = None,
) -> Moved:  # fmt: skip
    """Move several parts as one, as `transfer` does each, and what goes beside them."""
    moved = [
        transfer(
            link, leg.model, leg.tokens, leg.source, leg.target, leg.indexer, both_ways, leg.skip,
            by_layer,
        ) for leg in legs
    ]  # fmt: skip
    if len(moved) == 1 and beside is None:
        return moved[0]
    parts = [each.pieces for each in moved] + ([] if beside is None else [beside])
    found = reduce(together, parts)
    cost = link.cost(found.sizes, found.counts, both_ways)
    return Moved(found, cost, max((each.ranks for each in moved), default=1))


def of_layers(model: TransformerSpec, layers: int) -> TransformerSpec:
    """The KV of so many of a model's layers, without windows and states."""
    if model.window is None and model.state is None and layers == model.layers:
        return model
    return model.model_copy(update={"layers": layers, "window": None, "state": None})


def _mover(
    link: LinkSpec, tokens: int, source: TransferEnd, target: TransferEnd, skip: int, by_layer: bool
) -> Callable[..., Pieces]:  # fmt: skip
    """The pieces between two ranks, each (heads it holds, first of them that moves)."""

    def move(
        near: tuple[int, int], far: tuple[int, int], heads: int, layers: int, halves: int,
        head_bytes: int,
    ) -> Pieces:  # fmt: skip
        ends = (
            End(server.dims, server.block, server.table, *rank)
            for server, rank in ((source, near), (target, far))
        )
        return pieces(
            *ends, tokens=tokens, heads=heads, layers=layers, halves=halves,
            head_bytes=head_bytes, merges=link.merges, largest=link.largest, skip=skip,
            by_layer=by_layer,
        )  # fmt: skip

    return move
