"""What builds the components of a replica from its description: a function each. One that is a
connector joins the engine, too."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hwmodel.specs.device import Device
from hwmodel.specs.transformer import TransformerSpec
from policies.allocators.capabilities import Maps, Swaps
from policies.engines.engine import Engine
from policies.memory.component import Component
from policies.memory.fidelity import Memory
from policies.memory.step import StepModel
from policies.serving.components import MappedFrames
from policies.serving.controllers import CONTROLLERS
from policies.serving.serving_spec import ServingSpec
from policies.transfers.connectors import CONNECTORS
from policies.transfers.kv_connector import Site as ConnectorSite
from policies.transfers.ports import Port
from policies.transfers.swap_space import SwapSpace


@dataclass(frozen=True)
class Site:
    """Of a replica that is being built: what there is already. `steps`: of its (heaviest) stage;
    `stages`: how many. `port`: of a replica of a pool."""

    spec: ServingSpec
    device: Device
    local: TransformerSpec
    steps: StepModel
    memory: Memory
    stages: int
    engine: Engine
    port: Port | None = None

    @property
    def of_connectors(self) -> ConnectorSite:
        """As connectors see it."""
        cards = self.spec.tensor_parallel * self.stages  # stages move their layers at once
        return ConnectorSite(
            self.device, self.local, self.engine.allocator, self.steps, cards,
            lambda: self.memory.efficiency, self.stages,
        )  # fmt: skip


def mapped_frames(site: Site) -> Iterable[Component]:
    if (maps := site.engine.allocator.able(Maps)) is not None:
        yield MappedFrames(maps)


def swaps(site: Site) -> Iterable[Component]:
    if (swapping := site.spec.engine.swapping) is None:
        return
    able = site.engine.allocator.able(Swaps) is not None
    if swapping.choice == "auto" and not (able and site.engine.several):
        return  # those with several samples are swapped, where the policy can
    made = SwapSpace(swapping, site.of_connectors)
    site.engine.connect(made)
    yield made


def port(site: Site) -> Iterable[Component]:
    if site.port is not None:
        site.port.joins(site.engine, site.steps, site.local, site.spec.tensor_parallel)
        yield site.port


def connectors(site: Site) -> Iterable[Component]:
    for name, options in site.spec.connecting.items():
        made = CONNECTORS[name](options, site.of_connectors)
        site.engine.connect(made)
        yield made


def equipment(site: Site) -> Iterable[Component]:
    controllers = (CONTROLLERS[name] for name in site.spec.cluster.control)
    for equip in dict.fromkeys(each for kind in controllers for each in kind.equips):
        yield equip(site.engine, site.steps)


BUILDERS: tuple[Callable[[Site], Iterable[Component]], ...] = (
    swaps, port, connectors, equipment, mapped_frames,
)  # fmt: skip
"""In the order in which connectors are asked, and in which steps are made longer."""


def build_components(site: Site) -> list[Component]:
    """All components that the description asks for."""
    return [component for builder in BUILDERS for component in builder(site)]
