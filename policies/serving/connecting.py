"""What a replica has beside its scheduler and its memory, built from its description."""

from __future__ import annotations

from policies.engines.engine import Engine
from policies.serving.controllers import CONTROLLERS
from policies.serving.serving_spec import ServingSpec
from policies.transfers.connectors import CONNECTORS
from policies.transfers.kv_connector import Site
from policies.transfers.ports import Port
from policies.transfers.swap_space import SwapSpace


def connect(spec: ServingSpec, site: Site, engine: Engine, port: Port | None) -> None:
    """All connectors that the description asks for join the engine, in the order in which they are
    asked, and in which steps are made longer. port: of a replica of a pool."""
    if (swapping := spec.engine.swapping) is not None:
        engine.connect(SwapSpace(swapping, site))
    if port is not None:
        port.joins(engine, site.steps, site.model, spec.tensor_parallel)
    for name, options in spec.connecting.items():
        engine.connect(CONNECTORS[name](options, site))
    controllers = (CONTROLLERS[name] for name in spec.cluster.control)
    for equip in dict.fromkeys(each for kind in controllers for each in kind.equips):
        equip(engine, site.steps, site.links)
