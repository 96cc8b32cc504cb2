"""A run of serving, and what each of its replicas has of its own: what all that is built for them
is handed whole."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from hwmodel.specs.device import Device
from hwmodel.specs.transformer import TransformerSpec
from policies.allocators.kv_frames import Placed
from policies.memory.fidelity import Simulate
from policies.memory.routing import Routing
from policies.requests.requests import Requests
from policies.serving.metrics import Metrics
from policies.serving.recorder import Watches
from policies.serving.served_stream import ServedStream
from policies.serving.serving_spec import ServingSpec, model_of_a_card
from policies.transfers.fabric import Fabric, Links
from policies.transfers.ports import Port

Seed = int | tuple[int, ...]
"""Of a replica: that of its run, and what tells it from others."""


@dataclass(frozen=True)
class Run:
    """What is served, on what, and how.

    Args:
        spec: filled in for the device (`ServingSpec.on_device`).
        metrics: collects what replicas do.
        simulate: instead of `hwmodel.kernel.memory.simulate_system`, for tests.
        watches: what watches replicas, where events are recorded.
        profile: earlier requests, whose lengths a policy that learns knows from the start.
        fabric: owns all links, of all nodes.
    """

    device: Device
    model: TransformerSpec
    spec: ServingSpec
    stream: ServedStream
    metrics: Metrics
    seed: int
    simulate: Simulate | None = None
    watches: Watches | None = None
    profile: Requests | None = None
    fabric: Fabric = field(default_factory=Fabric)

    @cached_property
    def local(self) -> TransformerSpec:
        """The shard of the model on each card of a replica."""
        return model_of_a_card(self.spec, self.model)

    @cached_property
    def alike(self) -> dict[Hashable, Any]:
        """What its replicas have in common, made for the first of them."""
        return {}


@dataclass(frozen=True)
class Berth:
    """Where a replica of a run stands.

    Args:
        links: of its cards.
        routing: of experts, which all replicas have in common; None: the model has none.
        port: of pools.
        placed: where the KV of a group lies, unless it is laid out anew.
    """

    seed: Seed
    links: Links
    routing: Routing | None = None
    port: Port | None = None
    placed: Placed | None = None
