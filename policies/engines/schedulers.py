"""The schedulers that `serving.engine` can name. To add one, add a line here; the first is the
default."""

from __future__ import annotations

from typing import Annotated

from pydantic import SerializeAsAny

from hwmodel.description.written import Chosen
from policies.engines.engine_options import EngineOptions
from policies.engines.engine_sglang import EngineSglang
from policies.engines.engine_v0 import EngineV0
from policies.engines.engine_v1 import EngineV1
from policies.engines.scheduler import Scheduler

SCHEDULERS: dict[str, type[Scheduler]] = {
    "v1": EngineV1,
    "v0": EngineV0,
    "sglang": EngineSglang,
}
DEFAULT_SCHEDULER = next(iter(SCHEDULERS))

_CHOSEN = Chosen(
    "engine", lambda: {name: each.Options for name, each in SCHEDULERS.items()},
    DEFAULT_SCHEDULER, short=True,
)  # fmt: skip
EngineChoice = Annotated[SerializeAsAny[EngineOptions], _CHOSEN]
"""Field type: the options of one of the schedulers, chosen by `name`."""


def default_options() -> EngineOptions:
    """The options of the default scheduler, with their own defaults."""
    return SCHEDULERS[DEFAULT_SCHEDULER].Options.model_validate({})
