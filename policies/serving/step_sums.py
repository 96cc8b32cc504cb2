"""Sums over the steps of a run: what they did, moved and took."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from policies.allocators.kv_layout import KvLayout
from policies.engines.scheduled_step import STEP_LIMITS, Step
from policies.memory.step import PHASES, StepTimes
from policies.memory.step_work import MOVING, StepWork, total
from policies.requests.requests import FloatArray

SLOT_STATES = ("used", "unfilled", "unneeded", "holes", "head_of_line", "free")
"""What a token slot is at any time. Reserved: `used` holds a stored token, `unfilled` will hold one
of its request, `unneeded` never will (a policy that reserves as it stores has none: the rest of its
last blocks counts as unfilled). Free while KV memory limits the batch: `holes`, which the next
requests in line would reserve if all free slots were one run, and `head_of_line`, fewer than the
next one then needs. Free at other times: `free`."""

Moved = defaultdict[tuple[str, str], float]
"""Bytes by phase and kind (`policies.memory.step_work`)."""


@dataclass
class Sums:
    """Sums over steps; a difference of two is what happened in between. Times in seconds. Steps of
    several cards that are stages of one replica count once, as those of the mean card; what the
    others add are the sums of `further` cards."""

    seconds: float = 0.0
    steps: int = 0
    output_tokens: int = 0
    prefill_tokens: int = 0
    cached_tokens: int = 0
    """Tokens that requests found in memory, instead of prefilling them."""
    batch_seconds: float = 0.0
    stored_seconds: float = 0.0
    reserved_seconds: float = 0.0
    """Slots that hold a token, and slots that are reserved, times seconds; shared ones once."""
    drafted: int = 0
    """Drafts that were verified."""
    accepted: int = 0
    """Those of them that are output."""
    verified: int = 0
    """Sequences whose drafts were verified, times steps."""
    compute_s: float = 0.0
    """Time of phases whose FLOPs take longer than their bytes."""
    hole_seconds: float = 0.0
    slot_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(SLOT_STATES, 0.0))
    """Slots in each state times seconds of steps."""
    binding_slot_s: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(SLOT_STATES, 0.0)
    )
    """The same of steps that KV memory limited."""
    preemptions: int = 0
    migrations: int = 0
    migrated_tokens: float = 0
    copied_tokens: int = 0
    """Tokens copied on write."""
    swapped_tokens: int = 0
    """Tokens copied to host memory, and back."""
    moved: Moved = field(default_factory=lambda: defaultdict(int))
    further_moved: Moved = field(default_factory=lambda: defaultdict(int))
    further_s: float = 0.0
    further_idle_s: float = 0.0
    phase_s: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys((*PHASES, "overhead"), 0.0)
    )
    limit_s: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys((*STEP_LIMITS, "idle"), 0.0)
    )

    def add(
        self, step: Step, times: StepTimes, layout: KvLayout, decoded: int, seconds: float
    ) -> tuple[int, int]:
        """Consecutive equal steps, which decode so many tokens each and take so long together:
        (output tokens of each that decodes, those that prefills lead to)."""
        rounds, begun, made = len(times.total_s), 0, decoded
        self.seconds += seconds
        self.steps += rounds
        for chunk in step.chunks:
            self.prefill_tokens += chunk.tokens
            begun += chunk.samples if chunk.last else 0
        self.cached_tokens += step.cached
        if step.additions:
            made = self._additions(step)
        self.output_tokens += made * rounds + begun
        if step.preempted or step.migrations:
            self._moves(step, layout)
        self._add_work(times.work)
        self._add_phases(times, rounds)
        self.limit_s[step.limit] += seconds
        if times.work.stages > 1:
            self.further_s += (times.work.stages - 1) * seconds
        return made, begun

    def idle(self, seconds: float, stages: int) -> None:
        """Nothing ran for this long on a replica of so many stages."""
        self.limit_s["idle"] += seconds
        self.further_idle_s += (stages - 1) * seconds

    def _additions(self, step: Step) -> int:
        """Add what is copied and verified in a step; its output tokens."""
        self.copied_tokens += step.copied
        self.swapped_tokens += step.swapped
        if step.rows is not None:
            self.drafted += step.drafts
            self.accepted += step.accepted
            self.verified += len(step.decode)
        return step.output

    def _moves(self, step: Step, layout: KvLayout) -> None:
        """Add preemptions and migrations."""
        self.preemptions += step.preempted
        for migration in step.migrations:
            self.migrations += 1
            whole = migration.tokens
            self.migrated_tokens += whole if layout.groups is None else layout.groups.copied(whole)

    def _add_work(self, work: StepWork) -> None:
        """Add the bytes of each phase, by kind."""
        rounds, moved = work.rounds, self.moved
        for name, phase in work.phases.items():
            for kind, amount in phase.bytes.items():
                moved[name, kind] += amount if rounds == 1 else total(amount, rounds)
        if (further := work.stages - 1) > 0:
            for name, phase in work.phases.items():
                for kind, amount in phase.bytes.items():
                    self.further_moved[name, kind] += further * total(amount, rounds)

    def _add_phases(self, times: StepTimes, rounds: int) -> None:
        """Add the time of each phase."""
        phase_s = self.phase_s
        if rounds == 1:
            attention_s, compute_s = times.attention_s.item(), times.compute_s.item()
        else:
            attention_s, compute_s = summed(times.attention_s), summed(times.compute_s)
        self.compute_s += compute_s
        phase_s["weights"] += times.weights_s * rounds
        phase_s["attention"] += attention_s
        phase_s["overhead"] += times.overhead_s * rounds
        if times.prefill_s:
            phase_s["prefill"] += times.prefill_s * rounds
        if times.migration_s:
            phase_s["migration"] += times.migration_s * rounds
        if times.copy_s:
            phase_s["copy"] += times.copy_s * rounds
        if times.swap_s:
            phase_s["swap"] += times.swap_s * rounds
        if times.all_reduce_s:
            phase_s["all_reduce"] += times.all_reduce_s * rounds
        if times.draft_s:
            phase_s["draft"] = phase_s.get("draft", 0.0) + times.draft_s * rounds
        if times.stall_s is not None:
            phase_s["overhead"] += summed(times.stall_s)

    def moved_bytes(self) -> dict[str, int]:
        """Bytes that each phase read or wrote in the memory of the mean card; KV that several
        engines read counts once."""
        return _by_phase(self.moved, once=True)

    def moved_by_all(self) -> dict[str, int]:
        """The same of all stages together, as often as it is read."""
        return _by_phase(_plus(self.moved, self.further_moved, 1), once=False)

    def copy(self) -> Sums:
        return deepcopy(self)

    def plus(self, other: Sums, times: int = 1) -> Sums:
        """With so many times what another has."""
        out = Sums()
        for name, value in self.__dict__.items():
            more = other.__dict__[name]
            if isinstance(value, dict):
                out.__dict__[name] = _plus(value, more, times)
            else:
                out.__dict__[name] = value + times * more
        return out

    def since(self, earlier: Sums) -> Sums:
        """What was added after `earlier`."""
        return self.plus(earlier, -1)


def _plus(one: dict[Any, Any], more: dict[Any, Any], times: int) -> dict[Any, Any]:
    sums = {key: one.get(key, 0) + times * more.get(key, 0) for key in {**one, **more}}
    return defaultdict(int, sums)


def _by_phase(moved: Mapping[tuple[str, str], float], once: bool) -> dict[str, int]:
    sums: dict[str, float] = dict.fromkeys(MOVING[:-1], 0)
    for (phase, kind), size in moved.items():
        if not once or kind != "kv_again":
            sums[phase] = sums.get(phase, 0) + size
    return {phase: round(size) for phase, size in sums.items()}


def summed(seconds: FloatArray) -> float:
    """Their sum; mostly there is one."""
    return seconds.item() if len(seconds) == 1 else float(np.add.reduce(seconds))
