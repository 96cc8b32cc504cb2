"""Transfers between two pools: KV of requests that moves from the real blocks of a replica to
those of another (`policies.transfers.transfer`), over the network of the fabric
(`policies.transfers.fabric`).

With stages each one moves its layers to the same one of the other side, all at once, each over a
link of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from hwmodel.specs.link import load_link
from hwmodel.specs.transformer import TransformerSpec
from policies.serving.network import Network
from policies.serving.pool import Pool
from policies.serving.pool_options import DECODE, PREFILL, PoolsSpec
from policies.transfers.kv_link import KvPlace
from policies.transfers.ports import Places, Sent, between


class Arrived(NamedTuple):
    """A transfer that has: ms for memory, in line and on the link."""

    descriptors: int
    bytes: int
    memory_ms: float
    line_ms: float
    link_ms: float


class Way(NamedTuple):
    """Replicas that a request's KV goes from and to; -1: any."""

    source: int
    target: int


class PoolFabric:
    """`landed(sent, at_s)` is called for each transfer that arrives."""

    def __init__(
        self, spec: PoolsSpec, model: TransformerSpec, network: Network,
        landed: Callable[[Sent, float], None],
    ) -> None:  # fmt: skip
        """model: whole, in the smaller of the two formats of KV."""
        self._network = network
        self.arrived: list[Arrived] = []
        self.dropped: list[Sent] = []
        """Transfers that did not arrive."""
        self.before_s: dict[Any, float] = {}
        """How long each end of links was busy before the warm-up ended."""
        self._spec, self._model, self._landed = spec, model, landed
        self._kind, self._by_layer = load_link(spec.link), spec.transfer == "layers"
        self.pools: Mapping[str, Pool] = {}

    def between(self, pools: Mapping[str, Pool]) -> None:
        """It is between these. Raises DescriptionError for KV that `transfer` refuses."""
        self.pools = pools
        near, far = (pool.port(0).empty() for pool in pools.values())
        self._transfer(-1, Way(-1, -1), (0, 1), near, far, last=False)  # whether it can be

    def warm(self) -> None:
        """The warm-up ends: what has arrived before does not count."""
        self.before_s = dict(self._network.link.busy_s)
        self.arrived.clear()

    @property
    def busy_s(self) -> dict[Any, float]:
        """How long each end of links was busy since the warm-up ended."""
        busy_s = self._network.link.busy_s
        return {end: seconds - self.before_s.get(end, 0.0) for end, seconds in busy_s.items()}

    def send(
        self, request: int, way: Way, tokens: tuple[int, int], last: bool, now_s: float,
        began_s: float, ended_s: float,
    ) -> Sent:  # fmt: skip
        """Put a request's tokens from the first to before the second. last: no more of it follow.
        began_s, ended_s: when the step that computed the last of them began and ends; layer by
        layer they leave while it does."""
        near, far = (self.pools[name].port(at) for name, at in zip(self.pools, way, strict=True))
        places = near.places(request), far.places(request)
        sent = self._transfer(request, way, tokens, *places, last)
        at_s = now_s
        if self._by_layer and now_s < ended_s:
            at_s = max(now_s, began_s + (ended_s - began_s) / self._model.layers)
            sent.until_s = ended_s + sent.alone_s / self._model.layers
        self._network.put(sent, at_s)
        return sent

    def drop(self, jobs: Sequence[Sent]) -> None:
        """Take back transfers that have not arrived."""
        self.dropped += jobs
        self._network.drop(jobs)

    def count(self, sent: Sent, computed_s: float) -> None:
        """It has landed, and was computed then."""
        memory_s = max(sent.put_s - computed_s, 0.0)
        line_s, link_s = sent.began_s - sent.put_s, sent.landed_s - sent.began_s
        times = memory_s * 1e3, line_s * 1e3, link_s * 1e3
        self.arrived.append(Arrived(sent.descriptors, sent.bytes, *times))

    def _transfer(
        self, request: int, way: Way, tokens: tuple[int, int], near: Places, far: Places,
        last: bool,
    ) -> Sent:  # fmt: skip
        """A transfer between such places. With the last tokens go the request's states, in the
        shares of the side with fewer cards."""
        pools, beside = self.pools, None
        if last:
            fewest = min(pools.values(), key=lambda pool: pool.cards)
            beside = fewest.port(0).states
        index = pools[DECODE].port(0).engine.allocator.layout.layer_index_bytes
        moved = between(
            self._kind, self._model, *tokens, near, far, self._by_layer, beside, index
        )  # fmt: skip
        source, target = (
            pools[name].node.replicas[at].stages for name, at in zip(pools, way, strict=True)
        )
        found = moved.pieces
        return Sent(
            source=(self._end_of(PREFILL, way.source),),
            target=(self._end_of(DECODE, way.target),), way="pools", on_landed=self._landed,
            bytes=found.bytes, descriptors=found.descriptors, alone_s=moved.cost.total_ns / 1e9,
            request=request, spread=moved.ranks / pools[DECODE].cards * source / target,
            last=last, tokens=tokens,
        )  # fmt: skip

    def _end_of(self, name: str, number: int) -> KvPlace:
        """Where links to a card of a node end: at the first of those that serve with it."""
        if number < 0:
            return KvPlace(name, number)
        return KvPlace(name, self.pools[name].node.unit_of[number].number)
