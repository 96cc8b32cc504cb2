"""The engines that a serving description can name."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, SerializeAsAny
from pydantic_core import PydanticCustomError

from hwmodel.description.description import nearest
from hwmodel.description.written import Chosen
from policies.engines.engine import Engine, EngineOptions
from policies.engines.engine_v0 import EngineV0, EngineV0Spec
from policies.engines.engine_v1 import EngineV1, EngineV1Spec


class _Generation(NamedTuple):
    """A generation of the engine."""

    options: type[EngineOptions]
    engine: type[Engine]


ENGINES = {"v1": _Generation(EngineV1Spec, EngineV1), "v0": _Generation(EngineV0Spec, EngineV0)}


def _options(value: Any) -> Any:
    """`{name: v0, ...}` -> the options of that engine; v1 where none is named."""
    if not isinstance(value, dict):
        return value
    name = value.get("name", "v1")
    if name not in ENGINES:
        hint = nearest(str(name), list(ENGINES))
        raise PydanticCustomError("unknown_engine", "unknown engine; {hint}", {"hint": hint})
    return ENGINES[name].options.model_validate(value)


_CHOSEN = Chosen(lambda: {name: each.options for name, each in ENGINES.items()})
EngineChoice = Annotated[SerializeAsAny[EngineOptions], BeforeValidator(_options), _CHOSEN]
"""Field type: the options of one of the engines, chosen by `name`."""
