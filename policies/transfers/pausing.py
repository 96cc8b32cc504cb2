"""What a request that pauses (for a tool, or a human) costs: keep its KV, drop it, or swap it.

InferCept (arXiv 2402.01869) counts waste: memory that does nothing, times how long, here in token
seconds. A step with q tokens to compute takes a q + k (profiled there, from `StepModel` here).

- keep: pause x context;
- drop: the context comes back in n chunks of c tokens, up to the step that the cores saturate, and
  a last one; while it does, its own part and what its tokens delay the others by are waste:
  f_s c n (n + 1) / 2 + a c n others + (f_last context + a last others), f_s = a saturation + k;
- swap: free for what hides behind the forward steps; a copy that steps wait for holds up all:
  2 x copy x (context + others).

`Pauses` decides in a run, turn by turn. A swap there is a transfer in the background: no step waits
for it, and it wastes the memory that is held until it has left, and again until it is back. A pause
that is not known is taken to last as long again as it already has, and kept meanwhile; then the
better other way follows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

from hwmodel.specs.device import Device
from hwmodel.specs.transformer import TransformerSpec
from policies.engines.scheduled_step import Chunk, Step
from policies.memory.step import StepModel
from policies.memory.step_times import Efficiency
from policies.transfers.tier_options import PauseChoice

Way = Literal["keep", "drop", "swap"]


class StepCost(NamedTuple):
    """Time of a step with q tokens to compute: `token_s` q + `fixed_s`, at least as long as
    reading the weights takes, which is reached at `saturation` tokens."""

    token_s: float
    fixed_s: float
    saturation: int

    def seconds(self, tokens: float) -> float:
        return self.token_s * tokens + self.fixed_s


class BesideBatch(NamedTuple):
    """What runs beside: requests that decode, and the tokens that they hold together."""

    running: int
    tokens: int


class Pause(NamedTuple):
    """Waste of a pause in token seconds; `swap` of a copy that steps wait for, `hidden` of one that
    hides: 0, or None where the pause is too short for it."""

    seconds: float
    keep: float
    drop: float
    swap: float
    hidden: float | None

    @property
    def least(self) -> Way:
        """The way of least waste; swaps hide where they can."""
        swap = self.swap if self.hidden is None else self.hidden
        ways: dict[Way, float] = {"keep": self.keep, "drop": self.drop, "swap": swap}
        return min(ways, key=lambda way: ways[way])


def step_cost(
    device: Device,
    model: TransformerSpec,
    steps: StepModel,
    efficiency: Efficiency,
    batch: BesideBatch,
) -> StepCost:
    """The line through the times of a step in which the batch decodes: alone, and with a chunk that
    takes the tokens computed to where the cores, not the weights, bound it."""
    assert device.accelerator is not None
    compute = device.accelerator.compute
    rate = compute.peak(model.weights) * compute.prefill_efficiency
    share = efficiency.weights * device.accelerator.kernels.weights
    weights_s = model.step_weight_bytes / (device.peak_gbps * 1e9 * share)
    saturation = max(int(weights_s * rate / model.layer_flops), batch.running + 1)

    def seconds(chunk: int) -> float:
        chunks = [Chunk(batch.running, 0, chunk, False)] if chunk else []
        step = Step(np.arange(batch.running), batch.tokens, chunks, [], 0, "token_budget")
        return float(steps.times(step, 1, efficiency).total_s[0])

    # beyond saturation each token costs its compute
    first, further = saturation - batch.running, 4 * saturation
    token_s = (seconds(first + further) - seconds(first)) / further
    fixed_s = seconds(0) - token_s * batch.running
    return StepCost(token_s, fixed_s, saturation)


def drop_waste(context: int, cost: StepCost, batch: BesideBatch) -> float:
    """Token seconds that recomputing `context` tokens costs, in chunks."""
    chunk = max(cost.saturation - batch.running, 1)
    whole = math.ceil(context / chunk) - 1
    last = context - whole * chunk
    own = cost.seconds(cost.saturation) * chunk * whole * (whole + 1) / 2
    own += cost.seconds(batch.running + last) * context
    return own + cost.token_s * context * batch.tokens


def least_waste(
    device: Device, model: TransformerSpec, steps: StepModel, efficiency: Callable[[], Efficiency]
) -> Callable[[int, int, int], tuple[int, bool]]:
    """What a swap space asks (`policies.transfers.swap_space.Weighs`). efficiency: that of the
    memory, now."""

    def weighs(tokens: int, running: int, held: int) -> tuple[int, bool]:
        batch = BesideBatch(running, held)
        cost = step_cost(device, model, steps, efficiency(), batch)
        hidden = int(cost.seconds(running) / steps.host_s(steps.work.moved_bytes))
        copy_s = steps.host_s(steps.work.transferred((tokens,)))
        pause = paused(math.inf, tokens, cost, batch, copy_s, 0)
        return hidden, pause.least == "swap"

    return weighs


def budget(step_s: float, copy_s: dict[int, float]) -> int:
    """Most tokens whose copy hides behind a step. copy_s: seconds of copies by their tokens,
    growing."""
    return max((tokens for tokens, seconds in copy_s.items() if seconds <= step_s), default=0)


def paused(
    seconds: float,
    context: int,
    cost: StepCost,
    batch: BesideBatch,
    copy_s: float,
    hidden_tokens: int,
) -> Pause:
    """A pause of so many seconds. copy_s: of the whole context, one way, the mean of both;
    hidden_tokens: what hides behind each step."""
    hidden = None
    if hidden_tokens:
        steps = 2 * math.ceil(context / hidden_tokens)  # out, and back
        if steps * cost.seconds(batch.running) <= seconds:
            hidden = 0.0
    return Pause(
        seconds, seconds * context, drop_waste(context, cost, batch),
        2 * copy_s * (context + batch.tokens), hidden,
    )  # fmt: skip


def break_even_s(context: int, cost: StepCost, batch: BesideBatch) -> float:
    """The pause at which keeping wastes as much as dropping. A pause of unknown length, taken to
    last as long as it already has, is kept up to half of it."""
    return drop_waste(context, cost, batch) / context


class Pauses:
    """Decides for one replica. step_cost: of a step beside a batch."""

    def __init__(
        self, choice: PauseChoice, known: bool, step_cost: Callable[[BesideBatch], StepCost]
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
        self,
        request: int,
        now_s: float,
        pause_s: float,
        context: int,
        batch: BesideBatch,
        swap_s: float,
    ) -> Way:
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
