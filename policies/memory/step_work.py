"""The work of a step, counted once: what each of its phases moves, computes and sends.

Step times (`policies.memory.step`), metrics and energy read it; `policies.memory.step_streams`
makes the address stream of its phases, of as many bytes.

Phases: `weights`, the matrix products of all tokens, which read the weights once (of routed experts
those that any of the tokens passes through, in the mean; `policies.memory.routing`). `attention` of
the decoding requests: their KV read, their new tokens and drafts written. `prefill`, the attention
of prompt chunks: the KV of what was stored before read, their own written. `migration` and `copy`
(on write, or from one of the card's memories to another): every moved token read and written.
`swap`: KV to or from the host. `draft`: the passes of a drafter. Collectives go over the links
between cards.

Layers with a state read and write it once a sequence and step, and once a chunk; with drafts the
state behind each row is written, and where the one that holds is found by a copy (SGLang), it is
read and written once more. States move with a request that is migrated.

Where query heads that share a KV head read it each for itself (`work.grouped: false`), reads come
so many times over (`kv_again`). Latent attention reads its latents once and, where a phase has it
unabsorbed, makes K and V of all that was stored from them, in FLOPs. Blocks that several requests
hold together are read for each. Where the cores quantise KV, loading and storing its numbers are
operations (assumed: in the kernel of attention).

Whole experts on each card (`CardExperts`): in every layer the others wait for the card with the
most bytes of experts, or with the most FLOPs (`Routing.most`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from hwmodel.kernel.jit import kernel
from policies.requests.requests import FloatArray, IntArray

Free = Literal["weights", "compute", "copies"]
"""What a counterfactual has no work of."""
PhaseName = Literal["weights", "attention", "prefill", "migration", "copy", "swap", "draft"]
MOVING: tuple[PhaseName, ...] = (
    "weights", "attention", "prefill", "migration", "copy", "swap", "draft",
)  # fmt: skip
"""Phases that move bytes of a memory."""
Kind = Literal[
    "weights", "kv_read", "kv_again", "kv_written", "states", "index", "drafts", "transfers"
]
"""What bytes are of. `kv_again`: KV that query heads read beyond the first time; `index`: that by
which tokens are chosen; `transfers`: KV to or from another memory."""
Rate = Literal["decode", "prefill", "attend", "attend_prefill", "convert"]
"""At which rate FLOPs are done: those of the weights' format in tokens that are decoded and in
chunks, those of the activations' format in the attention of either, and vector operations."""
DEVICE = "device"
"""The memory of a card."""


class Growing:
    """A whole number that grows evenly from step to step: to the digit what int64 (rounds,) would
    be, without the cost of short arrays. Times a fraction, or over anything, it is float64
    (rounds,)."""

    __slots__ = ("first", "growth", "rounds")
    __array_ufunc__ = None  # NumPy leaves arithmetic with it to this class

    def __init__(self, first: int, growth: int, rounds: int) -> None:
        self.first, self.growth, self.rounds = first, growth, rounds

    @property
    def each(self) -> IntArray:
        """Of each step, int64 (rounds,)."""
        each: IntArray = self.first + self.growth * np.arange(self.rounds)
        return each

    @property
    def total(self) -> int:
        """Of all the steps."""
        return self.rounds * self.first + self.rounds * (self.rounds - 1) // 2 * self.growth

    def __add__(self, more: Any) -> Any:
        if isinstance(more, Growing):
            return Growing(self.first + more.first, self.growth + more.growth, self.rounds)
        if isinstance(more, int):
            return Growing(self.first + more, self.growth, self.rounds)
        return self.each + more

    __radd__ = __add__

    def __sub__(self, less: Any) -> Any:
        return self + -less

    def __mul__(self, times: Any) -> Any:
        if isinstance(times, int):
            return Growing(self.first * times, self.growth * times, self.rounds)
        return self.each * times

    __rmul__ = __mul__

    def __truediv__(self, by: Any) -> FloatArray:
        if isinstance(by, np.ndarray):
            return self.each / by
        shares = np.empty(self.rounds)
        _shares(self.first, self.growth, float(by), shares)
        return shares


@kernel
def _shares(first: int, growth: int, by: float, shares: FloatArray) -> None:
    """An amount of each step over `by`. shares: float64 (rounds,), modified."""
    for step in range(len(shares)):
        shares[step] = (first + growth * step) / by


class Phase(NamedTuple):
    """Of each of the steps: numbers, or, where they grow, `Growing`, int64 or float64
    (rounds,)."""

    bytes: Mapping[Kind, Any]
    flops: Mapping[Rate, Any]
    waits: Any
    """Bytes that the step waits for: those of all kinds, but of the weights those of the card with
    most of them, and of a swap what is not hidden."""
    memory: str = DEVICE

    @property
    def moved(self) -> Any:
        """Bytes of all kinds."""
        return sum(self.bytes.values())


class Collective(NamedTuple):
    """Activations that cards send each other, `many` times in a step."""

    kind: Literal["all_reduce", "exchange"]
    cards: int
    bytes: float
    """Each time: of the sum, or what the fullest card gets."""
    many: float


class StepWork(NamedTuple):
    """Work of `rounds` consecutive steps, which differ in nothing but the growing context."""

    rounds: int
    layers: int
    """Layers whose kernels are launched."""
    phases: dict[PhaseName, Phase]
    """Those that there are; `weights` and `attention` always."""
    collectives: tuple[Collective, ...] = ()
    stages: int = 1
    """Groups of cards that each do as much, one after the other."""
    rows: int = 0
    """Tokens that go through the matrix products of a step."""
    expert_rows: float = 0.0
    """Of them, mean of a routed expert that has any."""
    expert_flops: Mapping[Rate, float] = {}
    """Of the FLOPs of the products, those of routed experts; empty: there are none."""
    expert_bytes: float = 0.0
    """Of the weights that the step waits for, those of routed experts."""
    chunk_rows: int = 0
    """Of them, tokens of prompts' chunks."""
    chunk_padding: float = 1.0
    """Times the FLOPs of the chunks' attention that its tiles compute."""

    @property
    def moved(self) -> Any:
        """Bytes of all phases, in all the steps."""
        return sum(total(phase.moved, self.rounds) for phase in self.phases.values())

    def first(self, rounds: int) -> StepWork:
        """The first `rounds` steps of these."""
        cut: dict[PhaseName, Phase] = {
            name: Phase(
                {kind: _first(each, rounds) for kind, each in phase.bytes.items()},
                {rate: _first(each, rounds) for rate, each in phase.flops.items()},
                _first(phase.waits, rounds),
                phase.memory,
            )
            for name, phase in self.phases.items()
        }
        return self._replace(rounds=rounds, phases=cut)


def total(amount: Any, rounds: int) -> Any:
    """Of all the steps, where each has so much, as of `Phase`."""
    if isinstance(amount, Growing):
        return amount.total
    return np.add.reduce(amount).item() if isinstance(amount, np.ndarray) else rounds * amount


def each_of(amount: Any) -> Any:
    """An amount of `Phase` as a number, or (rounds,)."""
    return amount.each if isinstance(amount, Growing) else amount


def _first(amount: Any, rounds: int) -> Any:
    if isinstance(amount, Growing):
        return amount.first if rounds == 1 else Growing(amount.first, amount.growth, rounds)
    if not isinstance(amount, np.ndarray):
        return amount
    return amount[:rounds] if rounds > 1 else amount[0].item()


NO_WORK = StepWork(1, 0, {})


def mean_stage(works: Sequence[StepWork], stages: int) -> StepWork:
    """What the mean of so many stages does in a step, of which these are parts."""
    found: dict[PhaseName, Phase] = {}
    for name in MOVING:
        parts = [work.phases[name] for work in works if name in work.phases]
        if parts:
            moved = _sum_by_key((part.bytes for part in parts), stages)
            flops = _sum_by_key((part.flops for part in parts), stages)
            found[name] = Phase(moved, flops, sum(part.waits for part in parts) / stages)
    layers = round(sum(work.layers for work in works) / stages)
    sent = tuple(
        each._replace(many=each.many / stages) for work in works for each in work.collectives
    )
    first = works[0]
    expert_bytes = sum(work.expert_bytes for work in works) / stages
    return first._replace(
        layers=layers, phases=found, collectives=sent, stages=stages, expert_bytes=expert_bytes
    )


def _sum_by_key(rows: Iterable[Mapping[Any, Any]], over: int) -> dict[Any, Any]:
    sums: dict[Any, Any] = {}
    for row in rows:
        for key, amount in row.items():
            sums[key] = sums.get(key, 0) + amount / over
    return sums
