"""What it would take to move each request's KV when its prompt is computed, at the blocks that its
allocator gave it: figures of a serving run, which does not wait for it."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from hwmodel.description.description import DescriptionError, Strict
from hwmodel.specs.kv_order import KvOrder
from hwmodel.specs.link import LinkSpec, load_link
from hwmodel.specs.transformer import TransformerSpec
from policies.allocators.kv_layout import KvLayout, Units
from policies.requests.percentiles import summary
from policies.requests.requests import IntArray
from policies.transfers.pieces import pages
from policies.transfers.transfer import Server, transfer


class MovesSpec(Strict):
    """Transfers that are priced beside a run."""

    links: Annotated[list[str], Field(min_length=1)]
    """Shipped links, or files; each is priced alone."""
    to: Literal["fresh", "aged"] = "fresh"
    """Block ids at the other end; a reservation goes to one as long."""
    kv_layout: KvOrder | None = None
    """At both ends. None: the run's own."""


class Moves:
    """Collects the transfers of a run. `model`: the shard of a card."""

    def __init__(self, spec: MovesSpec, model: TransformerSpec, layout: KvLayout) -> None:
        """Raises DescriptionError for a link that is not known, and for KV that `transfer`
        refuses."""
        if layout.groups is not None or layout.apart is not None:
            raise DescriptionError(
                f"serving.moves: {model.name} with KV {model.kv} has windows or scales apart"
            )
        self._links = [load_link(name) for name in spec.links]
        self._to, self._model = spec.to, model
        self._dims = spec.kv_layout or layout.dims
        self._runs: list[int] = []
        self._blocks: list[int] = []
        self._found: dict[str, list[tuple[int, int, float, float]]] = {
            link.name: [] for link in self._links
        }

    def sent(self, request: int, units: Units) -> None:
        """The prompt of a request is computed, and lies in these units."""
        block, table = as_table(units)
        self._blocks.append(len(table))
        self._runs.append(1 + int((np.diff(table) != 1).sum()))
        source = Server(self._dims, block, table)
        far = pages(self._to if len(table) > 1 else "fresh", len(table), request)
        target, tokens = Server(self._dims, block, far), block * len(table)
        for link in self._links:
            self._found[link.name].append(self._priced(link, tokens, source, target))

    def _priced(
        self, link: LinkSpec, tokens: int, source: Server, target: Server
    ) -> tuple[int, int, float, float]:
        """(descriptors, bytes, ms, ms of posting)."""
        moved = transfer(link, self._model, tokens, source, target)
        found, cost = moved.pieces, moved.cost
        return found.descriptors, found.bytes, cost.total_ns / 1e6, cost.posting_ns / 1e6

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
