"""The engines that a serving description can name."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from pydantic import SerializeAsAny

from hwmodel.description.written import Chosen
from policies.engines.engine import Engine
from policies.engines.engine_options import EngineOptions
from policies.engines.engine_sglang import EngineSglang, EngineSglangSpec
from policies.engines.engine_v0 import EngineV0, EngineV0Spec
from policies.engines.engine_v1 import EngineV1, EngineV1Spec


class _Generation(NamedTuple):
    """A generation of the engine."""

    options: type[EngineOptions]
    engine: type[Engine]


ENGINES = {
    "v1": _Generation(EngineV1Spec, EngineV1), "v0": _Generation(EngineV0Spec, EngineV0),
    "sglang": _Generation(EngineSglangSpec, EngineSglang),
}  # fmt: skip


_CHOSEN = Chosen(
    "engine", lambda: {name: each.options for name, each in ENGINES.items()}, "v1", short=True
)
EngineChoice = Annotated[SerializeAsAny[EngineOptions], _CHOSEN]
"""Field type: the options of one of the engines, chosen by `name`."""
