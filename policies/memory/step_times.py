"""Times of steps, by phase, and what gives them."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from hwmodel.description.description import DescriptionError
from policies.engines.scheduled_step import Step
from policies.memory.step_work import NO_WORK, StepWork
from policies.requests.requests import FloatArray

PHASES = ("weights", "attention", "prefill", "migration", "copy", "swap", "all_reduce")
"""That have a time of their own in `StepTimes`."""


class Efficiency(NamedTuple):
    """Share of the memory's peak bandwidth that reaches the engines in each phase: what the DRAM
    was simulated to give, times `derate`, or what was given. Copies on write are migrations
    here."""

    weights: float = 1.0
    attention: float = 1.0
    prefill: float = 1.0
    migration: float = 1.0

    def as_one(self, chunks: bool) -> Efficiency:
        """Where phases are moved together: that of a step with `chunks`, or of one without, is that
        of all three."""
        share = self.prefill if chunks else self.attention
        return self._replace(weights=share, attention=share, prefill=share)


class StepTimes(NamedTuple):
    """Seconds of consecutive steps. `attention_s`, `total_s`: float64 (rounds,); others the same
    in each."""

    weights_s: float
    attention_s: FloatArray
    prefill_s: float
    migration_s: float
    overhead_s: float
    total_s: FloatArray
    compute_s: FloatArray
    """The part of `total_s` in phases whose FLOPs take longer than their bytes."""
    copy_s: float = 0.0
    swap_s: float = 0.0
    all_reduce_s: float = 0.0
    chunk_memory_s: float = 0.0
    """The part of `prefill_s` that hangs on how fast KV is moved."""
    stall_s: FloatArray | None = None
    """Part of `total_s`: waiting for frames to be mapped, or for other replicas; None: none
    does."""
    draft_s: float = 0.0
    """Part of `total_s`: passes of a drafter."""
    work: StepWork = NO_WORK
    """What they do."""
    weights_apart: bool = False
    """As of `Memory`."""

    def delayed(self, stall_s: FloatArray) -> StepTimes:
        """With steps that each wait so much longer, float64 (rounds,)."""
        if not stall_s.any():
            return self
        before_s = 0.0 if self.stall_s is None else self.stall_s
        return self._replace(total_s=self.total_s + stall_s, stall_s=before_s + stall_s)

    @property
    def memory_s(self) -> FloatArray:
        """The part of each step that memory bounds, float64 (rounds,)."""
        fixed: Any = self.overhead_s + self.swap_s + self.all_reduce_s
        if self.stall_s is not None:
            fixed = fixed + self.stall_s
        return np.maximum(self.total_s - self.compute_s - fixed, 0.0)

    def contended(self, taken: float, bandwidth: float, cost: float = 1.0) -> FloatArray:
        """Seconds that each of the steps takes longer while copies move `taken` of the `bandwidth`
        bytes a second of its memory, float64 (rounds,): the part of a step that memory bounds has
        the rest; where weights lie elsewhere, at most as long as KV is read and written. cost: of
        one of their bytes over one of the step's. Raises DescriptionError where nothing is left."""
        taken *= cost
        if taken >= bandwidth:
            raise DescriptionError(
                "KV in motion takes all that the card's DRAM gives; expected a slower link"
            )
        memory_s = self.memory_s
        if self.weights_apart:
            kv_s = self.attention_s + self.chunk_memory_s + self.migration_s + self.copy_s
            memory_s = np.minimum(memory_s, kv_s)
        return memory_s * taken / (bandwidth - taken)

    def first(self, rounds: int) -> StepTimes:
        """The first `rounds` steps of these."""
        if rounds == len(self.total_s):
            return self
        return self._replace(
            attention_s=self.attention_s[:rounds],
            total_s=self.total_s[:rounds],
            compute_s=self.compute_s[:rounds],
            stall_s=None if self.stall_s is None else self.stall_s[:rounds],
            work=self.work.first(rounds),
        )


class StepTimer(Protocol):
    """What gives the times of steps: a model on its cards, with a drafter, or in stages."""

    bandwidth: float
    """Peak bytes a second of a card's memory."""
    stages: int
    """Groups of cards that a step passes through one after the other."""
    pipeline: Any
    """The `policies.memory.pipeline.PipelineSteps` of stages; None: there are none."""

    def times(self, step: Step, rounds: int, efficiency: Efficiency) -> StepTimes:
        """Times of `rounds` steps in which only the context grows, a token a sample and step."""
