"""How memory time is found, and which share of the memory's peak each phase of a step reaches.

- `analytic`: given, or measured once a process and device; the control. It removes what placement
  changes and nothing else: the weights have the efficiency that they have when sampled, and all
  phases that move KV have one that does not depend on the layout, that of long contiguous extents,
  one for each engine (the mean over some places and sizes).
- `sampled`: each phase measured by cycle-level simulation of the step's own addresses, now and then
  (`policies.memory.sampling`).
- `full`: one whole layer of every phase of every step simulated; it stands for the others
  (`policies.memory.full`).
- `exhaustive`: every layer of every step; for small models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from hwmodel.description.description import Strict, checked
from hwmodel.description.units import Nanoseconds, PositiveBytes
from hwmodel.measure.stream import ENGINE_TILE
from policies.engines.engine import Engine
from policies.engines.scheduled_step import Step
from policies.memory.step_energy import Transfer
from policies.memory.step_times import Efficiency, StepTimes

Share = Annotated[float, Field(gt=0, le=1)]
Count = Annotated[int, Field(ge=1)]
Simulate = Callable[..., Any]
"""`hwmodel.kernel.memory.simulate_system`, or a stand-in with its signature."""

NO_PROBE = 1 << 30
"""Steps to the next probe when none is due."""
AGAIN = 8
"""Times `max_probes` that a phase is probed whose interval is too wide for the throughput."""
KV_PHASES: tuple[Literal["attention", "prefill", "migration"], ...] = (
    "attention", "prefill", "migration",
)  # fmt: skip
"""Phases that are simulated at the addresses of a step."""


class FidelitySpec(Strict):
    """How memory time is found. What decides when to probe is assumed."""

    fidelity: Literal["analytic", "sampled", "full", "exhaustive"] = "analytic"
    """How much is simulated: nothing in the run, windows of real steps, a layer of each step, or
    all of them."""
    efficiency: Share | None = None
    """analytic, every phase. None: what the DRAM model gives for weights and for contiguous KV."""
    weights: Share | None = None
    """Given instead of measured, in every fidelity; so are the next three."""
    attention: Share | None = None
    """Share of the peak, given."""
    prefill: Share | None = None
    """Share of the peak, given."""
    migration: Share | None = None
    """Share of the peak, given."""
    phases: Literal["in_turn", "together"] = "in_turn"
    """Whether weights, prefill and attention of a layer follow one another, or are moved at the
    same time and contend for the DRAM: simulated together in `full`, of one measured efficiency in
    `sampled`; `analytic` has no contention. Either way a bound (assumed; docs/memory-time.md)."""
    weight_tile: PositiveBytes = ENGINE_TILE
    """Weights are dealt to engines in turn in tiles of this size (assumed)."""
    probe_bytes: PositiveBytes = 6 << 20
    """A probe measures as long as the peak takes for this much, so that it costs the same on every
    device (assumed), or longer: to whole intervals of refresh where one more or less would matter,
    and where engines need many times as long to issue as much, so many times. A layer that is no
    longer than that and the warm-up is simulated whole."""
    warmup: Nanoseconds | None = None
    """Device time that a probe discards. None: as much as `measure` or `probe_bytes` say (assumed;
    a third of it left windows 0.9 % too slow on a100-80gb)."""
    measure: Nanoseconds | None = None
    """Least device time that a probe measures, whatever engines need. None: as `probe_bytes`
    says."""
    calibrate: PositiveBytes = 16 << 20
    """Most bytes of a layer that some probes simulate whole in addition to their window
    (assumed; whole layers can take seconds)."""
    precision: Annotated[float, Field(gt=0)] = 0.02
    """Relative half-width of a phase's 95 % interval above which further probes are taken, as they
    are while the interval that is stated is wider than 1.5 times this (assumed)."""
    change: Annotated[float, Field(gt=0)] = 0.2
    """Relative change of batch, extents or run length that asks for a probe."""
    every_steps: Count = 2000
    """Steps after which a probe comes in any case, unless `spacing` asks for more."""
    spacing: Annotated[float, Field(ge=0)] = 0.1
    """Least steps between probes, as a share of the steps so far (since the warm-up, after it), so
    that a run twice as long takes seven probes of a phase more (assumed)."""
    seed: Annotated[int, Field(ge=0)] = 0
    """sampled: another number draws other windows, of a run that is else the same."""
    max_probes: Count = 100
    """Probes of one phase: the most in the warm-up, and again after it."""
    again: Annotated[float, Field(gt=0)] = 0.05
    """Relative half-width that sampling may add to the throughput's. A phase that adds half of it
    is probed on, up to `AGAIN` times `max_probes` (assumed)."""
    refuse: Annotated[float, Field(gt=0)] = 0.1
    """Such a half-width above which a result does not count (assumed)."""

    @checked
    def _measured_as_one(self) -> None:
        given = [name for name in ("weights", "attention", "prefill") if getattr(self, name)]
        if given and self.phases == "together" and self.fidelity != "analytic":
            raise ValueError(f"{given[0]}: phases: together measures it with the others")


class Memory:
    """The efficiencies a run works with. This one is `analytic`: they stay."""

    rounds_to_probe = NO_PROBE
    """Steps that may be advanced together until a probe may be due."""
    weights_apart = False
    """Whether weights lie in other memories than KV, so that KV in motion takes nothing of what
    their reads have."""

    def __init__(
        self,
        efficiency: Efficiency,
        transfers: Mapping[str, Transfer] | None = None,
        routed: Callable[[int], float] | None = None,
    ) -> None:
        """routed: of a model with experts, the weights' efficiency in a step of so many tokens."""
        self.efficiency = efficiency
        self._routed = routed
        self._transfers = {} if transfers is None else dict(transfers)
        self.contention: Any = None
        """`policies.memory.contention.Contention`, where what moves beside steps is simulated."""
        self.streams: Any = None
        """`policies.memory.mapped.CardStreams`: what its card's steps move, and where it lies."""
        self._steps = 0

    def adds(self, step: Step, engine: Engine) -> Step:
        """A step that begins, with what moves between the memories of a card."""
        return step

    def beside(self, step: Step, engine: Engine, moving: Sequence[Any]) -> float:
        """What a byte of transfers (`contention.Moving`) costs a step, over one of its own."""
        if self.contention is None or not moving:
            return 1.0
        return float(self.contention.cost(step, engine.allocator, moving, self._steps))

    def in_motion(self) -> dict[str, Any]:
        """For reports: what was found of it."""
        return {} if self.contention is None else {"in_motion": self.contention.report()}

    def transfers(self) -> dict[str, Transfer]:
        """Energy of each phase's bytes; empty where nothing was simulated."""
        return self._transfers

    def observe(self, step: Step, engine: Engine) -> Efficiency:
        """The efficiencies of a step that has its memory."""
        if self._routed is not None:
            self.efficiency = self.efficiency._replace(weights=self._routed(step.routed))
        return self.efficiency

    def passed(self, rounds: int, times: StepTimes | None = None) -> None:
        """`rounds` steps were done, in these times."""

    def mark(self) -> None:
        """The warm-up is over: what was measured before does not count in the report."""

    def report(self, moved_bytes: int) -> dict[str, Any]:
        """Efficiencies and what finding them cost; `moved_bytes` is what the run moved."""
        return {"fidelity": "analytic", "efficiency": self.efficiency._asdict()}
