"""Builds the replicas of a node: one for each card, and those that several cards are together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from weakref import WeakKeyDictionary

from hwmodel.specs.stages import stages_of
from policies.allocators.kv_frames import Placed
from policies.allocators.kv_layout import KvLayout
from policies.memory.pipeline import PipelineSpec
from policies.memory.routing import Routing
from policies.serving.building import build_replica, kv_regions
from policies.serving.controllers import CONTROLLERS
from policies.serving.network import Network, places
from policies.serving.node import Node
from policies.serving.node_controller import Controller, Premises
from policies.serving.replica import Replica
from policies.serving.run import Berth, Run, Seed
from policies.transfers.fabric import Links
from policies.transfers.ports import Port


class ReplicaBuilder:
    """Of the cards of a `run`, all of one host. `ports`: of a side of a pool, that of each
    replica."""

    def __init__(
        self, run: Run, name: str = "", port: Callable[[Links], Port] | None = None, side: int = 0,
        cards: int = 1,
    ) -> None:  # fmt: skip
        """name: of the node. port: of a side of a pool, what makes that of a replica with these
        links. side: its number among the sides, and cards: how many it has, by which seeds
        differ."""
        self.run, self._name = run, name
        self._port, self._side, self._cards = port, side, cards
        self._first: Replica | None = None
        experts = run.local.experts
        # ranks are the model's: all replicas have the same, whose streams are measured once
        self._routing = None if experts is None else Routing(experts, run.spec.routing, run.seed)
        self.together = port is None and run.spec.experts_in_common and experts is not None
        """Whether all replicas have these experts in common."""
        self.ports: WeakKeyDictionary[Replica, Port] = WeakKeyDictionary()

    def card(self, card: int, life: int) -> Replica:
        """See `Node.make`."""
        own = self.run.seed
        if self._port is not None:
            seed = (own, card + 1000 * self._side) if card else own
            return self._built((card,), self.run, seed)
        key = (own, card, life) if life else (own, card) if card else own
        built = self._built((card,), self.run, key)
        if self._first is None:
            self._first = built
        elif not self.run.spec.cluster.moves:
            built.share(self._first)
        return built

    def group(
        self, cards: tuple[int, ...], stages: int, placed: Placed | None, pipeline: PipelineSpec
    ) -> Replica:  # fmt: skip
        """See `Premises.grouped`."""
        run, cluster = self.run, self.run.spec.cluster
        staged = {"stages": stages, "pipeline": cluster.pipeline or pipeline}
        spec = run.spec.model_copy(update={"cluster": cluster.model_copy(update=staged)})
        seed = (run.seed, self._cards + stages, *(() if self._port is None else (2,)))
        return self._built(cards, replace(run, spec=spec), seed, placed)

    def regions(self) -> list[KvLayout]:
        """See `Premises.regions`."""
        run = self.run
        stages = stages_of(run.local, run.spec.cluster.stages)
        return kv_regions(run.device, stages, run.spec, run.seed)

    def controllers(self, node: Node, network: Network) -> list[Controller]:
        """Those of the node that has these replicas, which are on this network."""
        premises = Premises(node, self.run.local, self.group, self.regions, network)
        control = self.run.spec.cluster.control
        return [CONTROLLERS[name](options, premises) for name, options in control.items()]

    def _built(
        self, cards: tuple[int, ...], run: Run, seed: Seed, placed: Placed | None = None
    ) -> Replica:
        links = run.fabric.at(*places(self._name, cards))
        port = None if self._port is None else self._port(links)
        built = build_replica(run, Berth(seed, links, self._routing, port, placed))
        if port is not None:
            self.ports[built] = port
        return built
