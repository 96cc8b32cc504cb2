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
from policies.memory.step_times import PHASES, StepTimes
from policies.memory.step_work import MOVING, StepWork, total
from policies.requests.requests import FloatArray
from policies.serving.stretch_rows import Stretches

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

    def add(self, step: Step, times: StepTimes, layout: KvLayout) -> None:
        """Count what consecutive equal steps computed and moved; `add_stretches` has their times
        and slots, and whoever calls it their output tokens."""
        rounds, work = len(times.total_s), times.work
        if step.chunks:
            for chunk in step.chunks:
                self.prefill_tokens += chunk.tokens
            self.cached_tokens += step.cached
        self.copied_tokens += step.copied
        self.swapped_tokens += step.swapped
        if step.rows is not None:
            self.drafted += step.drafts
            self.accepted += step.accepted
            self.verified += len(step.decode)
        if step.preempted or step.migrations:
            self._moves(step, layout)
        self._add_work(work)
        further = work.collectives or times.stall_s is not None or times.draft_s
        if further or len(work.phases) > 2 or work.stages > 1:
            self._add_further_phases(times, rounds)

    def add_stretches(self, rows: Stretches) -> None:
        """Add times and slots of stretches that were counted."""
        seconds, steps, slot_s, phase_s = rows.seconds, rows.steps, self.slot_s, self.phase_s
        self.seconds = _onto(self.seconds, seconds)
        self.steps += int(steps.sum())
        self.batch_seconds = _onto(self.batch_seconds, rows.running * seconds)
        self.hole_seconds = _onto(self.hole_seconds, rows.free_outside * seconds)
        self.compute_s = _onto(self.compute_s, rows.compute_s)
        phase_s["attention"] = _onto(phase_s["attention"], rows.attention_s)
        for name, each in (
            ("weights", rows.weights_s), ("overhead", rows.overhead_s), ("prefill", rows.prefill_s)
        ):  # fmt: skip
            phase_s[name] = _onto(phase_s[name], each * steps)
        stored_s = rows.stored * seconds + rows.grown * rows.steps_s
        reserved_s = rows.reserved_last * seconds - rows.fewer_s
        self.stored_seconds = _onto(self.stored_seconds, stored_s)
        self.reserved_seconds = _onto(self.reserved_seconds, reserved_s)
        free_s, fitting_s = rows.slots * seconds - reserved_s, rows.fitting * seconds
        unneeded_s = rows.unneeded * seconds
        bound = rows.limit == STEP_LIMITS.index("kv_memory")
        slot_s["free"] = _onto(slot_s["free"], free_s[~bound])
        taken = {
            "used": stored_s, "unfilled": reserved_s - stored_s - unneeded_s,
            "unneeded": unneeded_s,
        }  # fmt: skip
        held_back = {"holes": fitting_s, "head_of_line": free_s - fitting_s}
        for name, each in taken.items():
            slot_s[name] = _onto(slot_s[name], each)
        for name, each in held_back.items():
            slot_s[name] = _onto(slot_s[name], each[bound])
        for name, each in (taken | held_back).items():
            self.binding_slot_s[name] = _onto(self.binding_slot_s[name], each[bound])
        for number, limit in enumerate(STEP_LIMITS):
            self.limit_s[limit] = _onto(self.limit_s[limit], seconds[rows.limit == number])

    def idle(self, seconds: float, stages: int) -> None:
        """Nothing ran for this long on a replica of so many stages."""
        self.limit_s["idle"] += seconds
        self.further_idle_s += (stages - 1) * seconds

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

    def _add_further_phases(self, times: StepTimes, rounds: int) -> None:
        """Add the time of phases that most steps do not have."""
        phase_s = self.phase_s
        for name in ("migration", "copy", "swap", "all_reduce", "draft"):
            if each_s := getattr(times, f"{name}_s"):
                phase_s[name] = phase_s.get(name, 0.0) + each_s * rounds
        if times.stall_s is not None:
            phase_s["overhead"] += float(np.add.reduce(times.stall_s))
        if times.work.stages > 1:
            self.further_s += (times.work.stages - 1) * float(np.add.reduce(times.total_s))

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


def _onto(sum_so_far: float, column: FloatArray) -> float:
    """With float64 (n,) added to it, one after another."""
    return float(np.add.accumulate(np.concatenate(([sum_so_far], column)))[-1])
