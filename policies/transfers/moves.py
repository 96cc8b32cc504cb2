"""What it would take to move each request's KV when its prompt is computed, at the blocks that its
allocator gave it: figures of a serving run, which does not wait for it."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from hwmodel.description.description import Strict
from hwmodel.specs.kv_order import KvOrder
from hwmodel.specs.link import load_link
from hwmodel.specs.transformer import TransformerSpec
from policies.allocators.allocator import Allocator
from policies.allocators.kv_layout import Units
from policies.requests.percentiles import summary
from policies.requests.requests import IntArray
from policies.transfers.located import layers_of, table_of
from policies.transfers.pieces import pages
from policies.transfers.ports import between
from policies.transfers.transfer import TransferEnd, states


class MovesSpec(Strict):
    """Transfers that are priced beside a run."""

    links: Annotated[list[str], Field(min_length=1)]
    """Shipped links, or files; each is priced alone."""
    to: Literal["fresh", "aged"] = "fresh"
    """Block ids at the other end; a reservation goes to one as long."""
    kv_layout: KvOrder | None = None
    """At both ends. None: the run's own."""


class Moves:
    """Collects the transfers of a run. `model`: the shard of a card. Of layers with a window what
    the next token attends to moves, and states of a hybrid whole."""

    def __init__(self, spec: MovesSpec, model: TransformerSpec, allocator: Allocator) -> None:
        """Raises DescriptionError for a link that is not known."""
        layout = allocator.layout
        self._allocator, self._groups = allocator, layers_of(layout, model.kv_layers)
        self._states, self._index_bytes = states(model), layout.layer_index_bytes
        self._links = [load_link(name) for name in spec.links]
        self._to, self._model = spec.to, model
        self._dims = spec.kv_layout or layout.dims
        self._runs: list[int] = []
        self._blocks: list[int] = []
        self._found: dict[str, list[tuple[int, int, float, float]]] = {
            link.name: [] for link in self._links
        }

    def sent(self, request: int) -> None:
        """The prompt of a request is computed."""
        near, far = [], []
        blocks = runs = 0
        tokens = int(self._allocator.stored[request])
        for group, layers in enumerate(self._groups):
            if len(self._groups) == 1 and layers.window is None:
                block, table = as_table(self._allocator.units(request))
                tokens = block * len(table)
            else:
                block, table = table_of(self._allocator, request, group)
            gone = 0 if layers.window is None else layers.needs_from(tokens) // block
            blocks += len(table) - gone
            runs += 1 + int((np.diff(table[gone:]) != 1).sum())
            there = pages(self._to if len(table) > 1 else "fresh", len(table), request)
            near.append((layers, TransferEnd(self._dims, block, table)))
            far.append((layers, TransferEnd(self._dims, block, there)))
        self._blocks.append(blocks)
        self._runs.append(runs)
        for link in self._links:
            moved = between(
                link, self._model, 0, tokens, near, far, False, self._states, self._index_bytes
            )
            found, cost = moved.pieces, moved.cost
            self._found[link.name].append(
                (found.descriptors, found.bytes, cost.total_ns / 1e6, cost.posting_ns / 1e6)
            )

    def figures(self) -> dict[str, Any]:
        """Blocks and runs of blocks a request; of each link descriptors, bytes and times a
        request, the time's quantiles, and GB/s over all."""
        if not self._blocks:
            return {"requests": 0}
        blocks, runs = float(np.mean(self._blocks)), float(np.mean(self._runs))
        found: dict[str, Any] = {
            "requests": len(self._blocks), "blocks": blocks, "runs": runs,
            "blocks_a_run": blocks / runs,
        }  # fmt: skip
        for name, rows in self._found.items():
            descriptors, size, ms, posting = np.array(rows).T
            found[name] = {
                "descriptors": float(descriptors.mean()),
                "bytes": float(size.mean()),
                "posting_ms": float(posting.mean()),
                "ms": summary(ms),
                "gbps": float(size.sum() / ms.sum() / 1e6),
            }
        return found


def as_table(units: Units) -> tuple[int, IntArray]:
    """(tokens a block, block ids) of what a request holds: its blocks; one block of a reservation's
    stored tokens; or else slots in the largest blocks that all its units are made of."""
    start, tokens, size = units
    if len(size) == 1:
        return int(tokens[0]), np.zeros(1, np.int64)
    block = int(size[0])
    if (size == block).all() and not (start % block).any():
        return block, start // block
    block = math.gcd(*start.tolist(), *size.tolist())
    pieces = [np.arange(a, a + n, block) // block for a, n in zip(start, size, strict=True)]
    return block, np.concatenate(pieces).astype(np.int64)
