"""What a replica has beside its engine and its memory, built from its description."""

from __future__ import annotations

from typing import TypeVar

from policies.allocators.capabilities import Maps
from policies.engines.engine import Engine
from policies.engines.scheduled_step import Step
from policies.memory.component import Component
from policies.memory.step_times import Efficiency, StepTimes
from policies.requests.requests import FloatArray
from policies.serving.controllers import CONTROLLERS
from policies.serving.serving_spec import ServingSpec
from policies.transfers.connectors import CONNECTORS
from policies.transfers.kv_connector import KvConnector, Site
from policies.transfers.ports import Port
from policies.transfers.swap_space import SwapSpace

Made = TypeVar("Made", bound=KvConnector)


class MappedFrames(Component):
    """Steps wait until an allocator has mapped the frames that they need."""

    def __init__(self, allocator: Maps) -> None:
        self._allocator = allocator

    def stalls(
        self, step: Step, times: StepTimes, efficiency: Efficiency, cost: float
    ) -> FloatArray:  # fmt: skip
        return self._allocator.stalls(step.decode, times.total_s)

    def passed(self, end_s: float, times: StepTimes) -> None:
        self._allocator.charged()


def build_components(
    spec: ServingSpec, site: Site, engine: Engine, port: Port | None
) -> list[Component]:
    """All that the description asks for, in the order in which connectors, which join the engine,
    are asked, and in which steps are made longer. port: of a replica of a pool."""
    made: list[Component] = []
    if (swapping := spec.engine.swapping) is not None:
        made.append(_connected(engine, SwapSpace(swapping, site)))
    if port is not None:
        port.joins(engine, site.steps, site.model, spec.tensor_parallel)
        made.append(port)
    for name, options in spec.connecting.items():
        made.append(_connected(engine, CONNECTORS[name](options, site)))
    controllers = (CONTROLLERS[name] for name in spec.cluster.control)
    equips = dict.fromkeys(each for kind in controllers for each in kind.equips)
    made += [equip(engine, site.steps) for equip in equips]
    if (maps := engine.allocator.able(Maps)) is not None:
        made.append(MappedFrames(maps))
    return made


def _connected(engine: Engine, made: Made) -> Made:
    engine.connect(made)
    return made
