"""Cards that serve whole requests: their node, what controls it, and what they did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from policies.allocators.allocator import Allocator
from policies.allocators.capabilities import Learns, report_of
from policies.requests.requests import Requests
from policies.serving.building import admissible
from policies.serving.cells import ServedCell, energy_of
from policies.serving.cluster import Manager
from policies.serving.faults import faults_of
from policies.serving.network import Network
from policies.serving.node import Node, mean_of, merged
from policies.serving.replica_builder import ReplicaBuilder
from policies.serving.run import Run
from policies.serving.serving_spec import ServingSpec
from policies.serving.simulation import Watcher
from policies.serving.slot_use import Known


class Cards:
    """`cluster.cards` replicas behind one router. `enter`: None, requests go to the node."""

    enter: Callable[[int, float], None] | None = None

    def __init__(self, run: Run) -> None:
        """See `policies.serving.serving.serve`, for what is raised as well."""
        spec, stream = run.spec, run.stream
        self._run = run
        cluster, requests = spec.cluster, stream.requests
        builder = ReplicaBuilder(run, cards=cluster.cards)
        manager = Manager(cluster, requests, stream.predicted.length)
        self._node = node = Node(manager, builder.card, together=builder.together)
        self.nodes = [node]
        _teach(spec, [replica.engine.allocator for replica in node.own], run.profile)
        network = Network(run.fabric)
        self._controllers = builder.controllers(node, network)
        faults = [faults_of(node, each, run.seed) for each in spec.faults]
        moves: list[Watcher] = [network] if self._controllers else []  # nobody else moves KV there
        self.watchers: list[Watcher] = [*moves, *self._controllers, *faults]
        allocator = node.own[0].engine.allocator
        reaches = (each.reach for each in self._controllers if each.reach is not None)
        reach = max(reaches, default=None)
        self.admitted = admissible(spec, allocator, requests, stream.outputs, reach)

    def figures(self) -> tuple[dict[str, Any], ServedCell]:
        """All metrics of a run, those of several cards as of one; and what those of several cells
        are made of."""
        node, run = self._node, self._run
        stream, metrics, spec = run.stream, run.metrics, run.spec
        replicas = node.own
        allocators = [replica.engine.allocator for replica in replicas]
        figures = metrics.figures([each.engine for each in node.built], allocators[0].layout)
        figures |= stream.counts(self.admitted, spec.engine.max_tokens)
        moved = metrics.moved_bytes()
        report: dict[str, Any] = {}
        served = np.ones(1, np.int64)
        if len(replicas) == 1 and not spec.faults and not self._controllers:
            figures["policy"] = report_of(allocators[0])
            figures["memory"] = replicas[0].memory.report(moved)
        else:
            card_of = node.manager.card_of[self.admitted]
            served = np.bincount(card_of[card_of >= 0], minlength=len(replicas))
            reports = [replica.memory.report(moved // len(replicas)) for replica in replicas]
            figures["policy"] = mean_of([report_of(each) for each in allocators], served)
            figures["memory"] = mean_of(reports, served)
            report = node.report(stream.outputs)
            figures["node"] = merged([report])
        controllers = {each.name: each.report() for each in self._controllers}
        if controllers:
            figures["node"] |= controllers
        figures |= node.figures(served)
        if replicas[0].moves is not None:
            figures["moves"] = replicas[0].moves.figures()
        if replicas[0].pipeline is not None:
            figures["pipeline"] = replicas[0].pipeline.figures()
        figures |= stream.predicting()
        transfers = replicas[0].memory.transfers()
        figures |= energy_of(run.device, spec, metrics, transfers)
        one = replicas[0].engine
        known = Known(one.reserved_ever, one.run_tokens, one.allocator.layout)
        cell = ServedCell(metrics, known, transfers, {**figures, "node": report}, None, controllers)
        return figures, cell


def _teach(spec: ServingSpec, allocators: list[Allocator], profile: Requests | None) -> None:
    """Policies that learn know the lengths of `profile`, and with shared bounds learn together."""
    learners = [each for one in allocators if (each := one.able(Learns)) is not None]
    if profile is not None:
        for learner in learners:
            learner.profile(profile.prompt_tokens, spec.engine.cut(profile.output_tokens))
    if spec.cluster.bounds == "shared":
        for learner in learners[1:]:
            learner.share_bounds(learners[0])
