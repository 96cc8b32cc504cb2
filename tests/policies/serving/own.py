"""A plug-in: an allocator, a predictor and a router of one's own, as a user would write them."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from policies.allocators.allocator import Demand, Limits, PolicyOptions
from policies.allocators.arena import Arena
from policies.allocators.declaration import Range, References
from policies.allocators.losses import RESERVING
from policies.allocators.reservation import ContiguousAllocator
from policies.predictors.prediction import LognormalPredictions
from policies.predictors.predictor import PredictorSpec
from policies.routers.router import Router


class Room(ContiguousAllocator):
    """Reserves a fixed room for the answer, twice that once it is outgrown."""

    class Options(PolicyOptions):
        name: Literal["room"] = "room"
        tokens: int = 64

    losses = RESERVING
    searched = {"tokens": Range(1, 8192)}
    references = References(("static", "paged"), ceilings=("oracle", "ideal"))

    def __init__(self, layout: Any, requests: int, limits: Limits, options: Any) -> None:
        super().__init__(layout, requests, limits, options, Arena(0, layout.slots, "first"))

    def size(self, request: int, demand: Demand) -> int:
        return int(self.needs(demand.prompt, demand.generated))

    def needs(self, prompt: Any, output: Any) -> Any:
        room = np.maximum(self.options.tokens, 2 * output)
        return prompt + np.minimum(room, self.limits.max_tokens)


class Doubled(PredictorSpec):
    """Says `times` the length."""

    kind: Literal["doubled"] = "doubled"  # type: ignore[assignment]
    times: float = 2.0

    def predictions(self, output_tokens: Any, stream: Any) -> Any:
        return LognormalPredictions(self.times * output_tokens.astype(float))


class Last(Router):
    """All to the last card."""

    name = "last"

    def choose(self, request: int, count: Any, tokens: Any) -> int:
        return self.spec.cards - 1
