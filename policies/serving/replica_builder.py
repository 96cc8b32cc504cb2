"""Builds the replicas of a node: one for each card, and those that several cards are together."""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakKeyDictionary

from hwmodel.specs.device import Device
from hwmodel.specs.stages import stages_of
from hwmodel.specs.transformer import TransformerSpec
from policies.allocators.kv_frames import Placed
from policies.allocators.kv_layout import KvLayout
from policies.engines.host_memory import host_of
from policies.memory.fidelity import Simulate
from policies.memory.pipeline import PipelineSpec
from policies.memory.routing import Routing
from policies.serving.building import build_replica, kv_regions
from policies.serving.controllers import CONTROLLERS
from policies.serving.metrics import Metrics
from policies.serving.node import Node
from policies.serving.node_controller import Controller, Premises
from policies.serving.recorder import Watches
from policies.serving.replica import Replica
from policies.serving.served_stream import Stream
from policies.serving.serving_spec import ServingSpec, model_of_a_card
from policies.transfers.ports import Port


class ReplicaBuilder:
    """Of cards that serve as `spec` says, all of one host. `local`: the shard of each of them.
    `ports`: of a side of a pool, that of each replica."""

    def __init__(
        self, device: Device, model: TransformerSpec, spec: ServingSpec, stream: Stream,
        metrics: Metrics, seed: int, simulate: Simulate | None, watches: Watches | None,
        port: Callable[[int], Port] | None = None, side: int = 0, cards: int = 1,
    ) -> None:  # fmt: skip
        """port: of a side of a pool, what makes that of a card. side: its number among the sides,
        and cards: how many it has, by which seeds differ."""
        self.device, self.spec, self._stream = device, spec, stream
        self.local = model_of_a_card(spec, model)
        self.metrics, self._seed = metrics, seed
        self._simulate, self._watches = simulate, watches
        self._port, self._side, self._cards = port, side, cards
        self._host = host_of(spec.engine.swapping)
        self._first: Replica | None = None
        self.routing: Routing | None = None
        """Of experts that all replicas have in common."""
        if port is None and spec.experts_in_common and self.local.experts is not None:
            self.routing = Routing(self.local.experts, spec.routing, seed)
        self.ports: WeakKeyDictionary[Replica, Port] = WeakKeyDictionary()

    def card(self, card: int, life: int) -> Replica:
        """See `Node.make`."""
        if self._port is not None:
            seed = (self._seed, card + 1000 * self._side) if card else self._seed
            return self._built(card, self.spec, seed, self.routing)
        key = (self._seed, card, life) if life else (self._seed, card) if card else self._seed
        built = self._built(card, self.spec, key, self.routing)
        if self._first is None:
            self._first = built
        elif not self.spec.cluster.moves:
            built.share(self._first)
        return built

    def group(
        self, cards: tuple[int, ...], stages: int, placed: Placed | None, pipeline: PipelineSpec
    ) -> Replica:  # fmt: skip
        """See `Premises.grouped`."""
        cluster = self.spec.cluster
        staged = {"stages": stages, "pipeline": cluster.pipeline or pipeline}
        spec = self.spec.model_copy(update={"cluster": cluster.model_copy(update=staged)})
        seed = (self._seed, self._cards + stages, *(() if self._port is None else (2,)))
        return self._built(cards[0], spec, seed, None, placed)

    def regions(self) -> list[KvLayout]:
        """See `Premises.regions`."""
        stages = stages_of(self.local, self.spec.cluster.stages)
        return kv_regions(self.device, stages, self.spec, self._seed)

    def controllers(self, node: Node) -> list[Controller]:
        """Those of the node that has these replicas."""
        premises = Premises(node, self.local, self.group, self.regions)
        control = self.spec.cluster.control
        return [CONTROLLERS[name](options, premises) for name, options in control.items()]

    def _built(
        self, card: int, spec: ServingSpec, seed: int | tuple[int, ...],
        routing: Routing | None, placed: Placed | None = None,
    ) -> Replica:  # fmt: skip
        port = None if self._port is None else self._port(card)
        built = build_replica(
            self.device, self.local, spec, self._stream.requests, self._stream.predicted,
            self.metrics, seed, self._simulate, self._watches, routing, port, placed,
        )  # fmt: skip
        if port is not None:
            self.ports[built] = port
        if self._host is not None:
            built.share_host(self._host)
        return built
