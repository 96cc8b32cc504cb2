"""What becomes of KV while its session pauses, turn by turn: kept, dropped, or swapped to a tier.

InferCept (arXiv 2402.01869) takes the way of least waste (`policies.transfers.pausing`). A swap
here is a transfer in the background: no step waits for it, and it wastes the memory that is held
until it has left, and again until it is back. A pause that is not known is taken to last as long
again as it already has, and kept meanwhile; then the better other way follows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from policies.transfers.pausing import Batch, StepCost, drop_waste
from policies.transfers.tier_options import PauseChoice

Way = Literal["keep", "drop", "swap"]


class Pauses:
    """Decides for one replica. step_cost: of a step beside a batch."""

    def __init__(
        self, choice: PauseChoice, known: bool, step_cost: Callable[[Batch], StepCost]
    ) -> None:
        self._choice, self._known, self._step_cost = choice, known, step_cost
        self._until: dict[int, tuple[float, Way]] = {}
        self.ways = {"keep": 0, "drop": 0, "swap": 0}
        """How often each was chosen; what was kept at first counts again."""

    @property
    def due_s(self) -> float:
        """When the next request is kept no longer."""
        return min((at for at, _ in self._until.values()), default=math.inf)

    def begins(
        self, request: int, now_s: float, pause_s: float, context: int, batch: Batch, swap_s: float
    ) -> Way:  # fmt: skip
        """What to do with the `context` tokens of a request that pauses for so long. swap_s: time
        until they have left, and to be back."""
        way: Way
        if self._choice != "least":
            way = self._choice
        else:
            wastes: dict[Way, float] = {
                "drop": drop_waste(context, self._step_cost(batch), batch),
                "swap": swap_s * context,
            }
            way = min(wastes, key=wastes.__getitem__)
            even_s = wastes[way] / context
            if not self._known:
                self._until[request] = now_s + even_s / 2, way
                way = "keep"
            elif pause_s <= even_s:
                way = "keep"
        self.ways[way] += 1
        return way

    def over(self, now_s: float) -> dict[int, Way]:
        """Requests that have been kept for long enough, and what to do with them."""
        found = {request: way for request, (at, way) in self._until.items() if at <= now_s}
        for request, way in found.items():
            self.ends(request)
            self.ways[way] += 1
        return found

    def ends(self, request: int) -> None:
        """Its session goes on."""
        self._until.pop(request, None)
