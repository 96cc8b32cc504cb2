"""Options of fleets: hundreds of cards, some of which fail."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from hwmodel.description.description import Strict, checked
from policies.serving.moving_options import Seconds


class FailureSpec(Strict):
    """When cards fail, and how long they are away (all assumed). A card that fails loses its KV and
    the step under way; who was on it goes where the router says, with the tokens made so far, whose
    KV is computed again. It returns empty."""

    share: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Of the cards, which fail together at `at_s`, once; one at least."""
    at_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    mean_up_s: Seconds | None = None
    """Instead: each card fails by itself after exponential times of this mean."""
    down_s: Seconds = 60.0
    """Until a card serves again."""

    @checked
    def _one_law(self) -> None:
        if (self.share is None) == (self.mean_up_s is None):
            raise ValueError("failures: expected either share and at_s, or mean_up_s")
        if (self.share is None) != (self.at_s is None):
            raise ValueError("failures.at_s: stands with share, and only there")

    def first_s(self, cards: int, rng: np.random.Generator) -> dict[int, float]:
        """When cards fail first, by card."""
        if self.share is None:
            return {card: self.next_s(0.0, rng) for card in range(cards)}
        lost = rng.choice(cards, max(round(self.share * cards), 1), replace=False)
        assert self.at_s is not None
        return dict.fromkeys(sorted(lost.tolist()), self.at_s)

    def next_s(self, since_s: float, rng: np.random.Generator) -> float:
        """When a card fails that serves again since then; inf: never."""
        if self.mean_up_s is None:
            return np.inf
        return since_s + self.mean_up_s * float(rng.standard_exponential())


class FleetSpec(Strict):
    """How a fleet is simulated, and what happens to it."""

    cells: Annotated[int, Field(ge=1)] = 1
    """Equal parts of the cards, each behind a router of its own, which get the requests in turn.
    They are independent, so workers share them out. 1: one router sees all cards."""
    failures: FailureSpec | None = None
    """None: no card fails."""
