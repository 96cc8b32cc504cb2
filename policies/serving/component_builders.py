"""What builds the components of a replica from its description: a function each. One that is a
connector joins the engine, too."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hwmodel.specs.device import Device
from hwmodel.specs.transformer import TransformerSpec
from policies.allocators.capabilities import Maps
from policies.engines.engine import Engine
from policies.memory.component import Component
from policies.memory.step import StepModel
from policies.serving.components import HostedCopies, Lent, MappedFrames, Swaps
from policies.serving.serving_spec import ServingSpec
from policies.transfers.hosting import Hosting
from policies.transfers.lender import Lender
from policies.transfers.ports import Port
from policies.transfers.tiers import Tiers


@dataclass(frozen=True)
class Site:
    """Of a replica that is being built: what there is already. `steps`: of its (heaviest) stage;
    `stages`: how many. `port`: makes the port of a replica of a pool."""

    spec: ServingSpec
    device: Device
    local: TransformerSpec
    steps: StepModel
    stages: int
    engine: Engine
    port: Callable[[StepModel, TransformerSpec, int], Port] | None = None
    hosting: Hosting | None = None
    lender: Lender | None = None


def mapped_frames(site: Site) -> Iterable[Component]:
    allocator = site.engine.allocator
    if isinstance(allocator, Maps):
        yield MappedFrames(allocator)


def swaps(site: Site) -> Iterable[Component]:
    if site.engine.swaps and site.stages == 1:
        yield Swaps(site.steps, site.engine.allocator.layout.token_bytes)


def port(site: Site) -> Iterable[Component]:
    if site.port is not None:
        made = site.port(site.steps, site.local, site.spec.tensor_parallel)
        site.engine.connect(made)
        yield made


def tiers(site: Site) -> Iterable[Component]:
    spec = site.spec.tiers
    if spec is not None:
        made = Tiers(
            spec, site.device, site.local, site.engine.allocator, site.steps,
            site.spec.tensor_parallel * site.stages,  # stages move their layers at once
        )  # fmt: skip
        site.engine.connect(made)
        yield made


def moved(site: Site) -> Iterable[Component]:
    if site.lender is not None:
        yield Lent(site.lender, site.steps)
    if site.hosting is not None:
        yield HostedCopies(site.hosting, site.steps)


BUILDERS: tuple[Callable[[Site], Iterable[Component]], ...] = (
    swaps, port, tiers, moved, mapped_frames,
)  # fmt: skip
"""In the order in which connectors are asked, and in which steps are made longer."""


def build_components(site: Site) -> list[Component]:
    """All components that the description asks for."""
    return [component for builder in BUILDERS for component in builder(site)]
