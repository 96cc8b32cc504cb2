"""The memories of a card as one: each is simulated, or given, by itself, and what a phase of a step
reaches follows from the bytes that it has in each.

An efficiency is a share of the main memory's peak here, and may be above 1: two memories that each
move half of a phase's bytes in the same time give twice what one gives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from policies.engines.engine import Engine
from policies.engines.scheduled_step import Step
from policies.memory.fidelity import Memory
from policies.memory.step_energy import Transfer
from policies.memory.step_times import Efficiency, StepTimes
from policies.memory.step_work import StepWork
from policies.placements.card_memories import CardMemories
from policies.placements.placement import MAIN, CardSpace, IntArray, PlacedBatch, What

MOST_ROUNDS = 16
"""Steps in which the shares of the memories stay as they are, where they change (assumed)."""
HIDDEN = 1e9
"""Efficiency of a phase that another one hides."""
_PORT = "port"
"""What all bytes of memories that are read at once come through."""
_WHAT: dict[str, What] = {
    "weights": "weights", "attention": "kv", "prefill": "kv", "migration": "kv"
}  # fmt: skip
_AT_ONCE = ("weights", "attention", "prefill")
"""Phases that memories may move at the same time."""


class PlacedMemory(Memory):
    """Of `parts`, the memories of `card` by name. space: what is placed in them. work: of a step,
    where its phases overlap."""

    def __init__(
        self, parts: dict[str, Memory], card: CardMemories, space: CardSpace,
        work: Callable[[Step], StepWork],
    ) -> None:  # fmt: skip
        super().__init__(parts[MAIN].efficiency)
        self._parts, self._card, self._space, self._work = parts, card, space, work
        self._peaks = {name: each.peak_gbps * 1e9 for name, each in card.devices.items()}
        self._shares: dict[str, dict[str, float]] = {
            phase: card.placement.read(what, space) for phase, what in _WHAT.items()
        }
        """Of the bytes of each phase, in each memory, in the last step."""
        self._there: set[str] = set(_WHAT)
        """Phases that the last step had."""
        self._alike = MOST_ROUNDS
        """Steps from the last one on in which as many tokens change their memory."""
        self._aged = 0
        """Tokens that do so in each."""
        self._clear()
        self.weights_apart = not _has(card, space, "weights") & _has(card, space, "kv")
        self.efficiency = self._joined(
            {name: each.efficiency for name, each in parts.items()}, None
        )  # fmt: skip

    @property
    def rounds_to_probe(self) -> int:  # type: ignore[override]
        least = min(each.rounds_to_probe for each in self._parts.values())
        changes = self._card.placement.grows or self._card.overlap == "step"
        return min(least, MOST_ROUNDS, self._alike) if changes else least

    def adds(self, step: Step, engine: Engine) -> Step:
        placement, stored = self._card.placement, engine.allocator.stored[step.decode]
        if not placement.moves:
            return step
        each = int(placement.moved(stored, stored + 1).sum())
        spans = (1 << n for n in range(MOST_ROUNDS.bit_length()))
        self._alike = max(n for n in spans if placement.moved(stored, stored + n).sum() == n * each)
        aged = round(each * step.output / max(len(step.decode), 1))  # of drafts, too
        for chunk in step.chunks:
            start = np.array([chunk.start])
            aged += int(placement.moved(start, start + chunk.tokens).sum())
        return step._replace(aged=aged)

    def observe(self, step: Step, engine: Engine) -> Efficiency:
        found = {name: each.observe(step, engine) for name, each in self._parts.items()}
        self._there, self._aged = set(_phases_of(step)), step.aged
        if self._aged:
            self._shares["migration"] = self._of_copies(step)
        if self._card.placement.grows:
            read, space = self._card.placement.read, self._space
            decoding = _batch(engine, step.decode, step.routed)
            self._shares["attention"] = read("kv", space, decoding)
            self._shares["weights"] = read("weights", space, decoding)
            chunks = np.array([chunk.request for chunk in step.chunks], np.int64)
            if len(chunks):
                filling = _batch(engine, chunks, step.routed)._replace(tokens=chunks[:0])
                self._shares["prefill"] = read("kv", space, filling)
        self.efficiency = self._joined(found, step)
        return self.efficiency

    def beside(self, step: Step, engine: Engine, moving: Sequence[Any]) -> float:
        """In the memory in which a byte costs the most."""
        costs = [
            each.beside(step, engine, moving) for each in self._parts.values()
            if each.contention is not None
        ]  # fmt: skip
        return max(costs, default=1.0)

    def in_motion(self) -> dict[str, Any]:
        found = [each.in_motion() for each in self._parts.values() if each.contention is not None]
        return max(found, key=lambda each: each["in_motion"]["cost"], default={})

    def _of_copies(self, step: Step) -> dict[str, float]:
        """Shares of what is read and written as KV is copied: what ages, and the rest, which stays
        in its memory."""
        rest = step.copied + sum(each.tokens for each in step.migrations)
        within, across = self._card.placement.read("kv", self._space), self._card.placement.carried
        return {
            name: (rest * within.get(name, 0.0) + step.aged * across.get(name, 0.0))
            / (rest + step.aged)
            for name in self._parts
        }

    def _clear(self) -> None:
        self._moved = 0
        """Tokens that changed their memory."""
        self._rounds = dict.fromkeys(_WHAT, 0)
        """Steps that had each phase, and the sums of its shares in them."""
        self._sums = {phase: dict.fromkeys(self._parts, 0.0) for phase in _WHAT}

    def _joined(self, found: dict[str, Efficiency], step: Step | None) -> Efficiency:
        """Of the memories together, whose own are `found`."""
        rates = {
            name: [self._card.let_through(name, self._peaks[name] * share) for share in each]
            for name, each in found.items()
        }
        seconds = {
            phase: {
                name: share / rates[name][place]
                for name, share in self._shares[phase].items() if share
            }
            for place, phase in enumerate(Efficiency._fields)
        }  # fmt: skip
        if self._card.port is not None and self._card.overlap != "none":
            for each in seconds.values():
                each[_PORT] = 1.0 / self._card.port
        whole = {phase: self._one(each) for phase, each in seconds.items()}
        if self._card.overlap == "step" and step is not None:
            whole |= self._of_the_slowest(seconds, step)
        peak = self._peaks[MAIN]
        return Efficiency(**{
            phase: 1.0 / (each * peak) if each else HIDDEN for phase, each in whole.items()
        })  # fmt: skip

    def _one(self, seconds: dict[str, float]) -> float:
        """Seconds of a byte of a phase that has these in the memories."""
        return sum(seconds.values()) if self._card.overlap == "none" else max(seconds.values())

    def _of_the_slowest(self, seconds: dict[str, dict[str, float]], step: Step) -> dict[str, float]:
        """Of each phase what it has in the memory that has most to do in all of the step."""
        phases = self._work(step).phases
        moved = {name: float(phases[name].waits) for name in _AT_ONCE if name in phases}
        busy = {
            memory: sum(size * seconds[phase].get(memory, 0.0) for phase, size in moved.items())
            for memory in (*self._parts, _PORT)
        }
        slowest = max(busy, key=busy.__getitem__)
        return {phase: seconds[phase].get(slowest, 0.0) for phase in moved}

    def _read(self) -> dict[str, dict[str, float]]:
        """Shares of the bytes of each phase in each memory that has any, the mean over steps."""
        found = dict(self._shares)
        for phase, sums in self._sums.items():
            if rounds := self._rounds[phase]:
                found[phase] = {name: total / rounds for name, total in sums.items() if total}
        return found

    def passed(self, rounds: int, times: StepTimes | None = None) -> None:
        self._steps += rounds
        self._moved += rounds * self._aged
        for phase in self._there:
            self._rounds[phase] += rounds
            for name, share in self._shares[phase].items():
                self._sums[phase][name] += rounds * share
        for each in self._parts.values():
            each.passed(rounds, times)

    def mark(self) -> None:
        self._clear()
        for each in self._parts.values():
            each.mark()

    def transfers(self) -> dict[str, Transfer]:
        """Energy of a byte of each phase; none of one that a memory moved unsimulated."""
        found: dict[str, Transfer] = {}
        own = {name: each.transfers() for name, each in self._parts.items()}
        for phase, shares in self._read().items():
            parts = {name: own[name].get(phase, {}) for name, share in shares.items() if share}
            if all(parts.values()):
                keys = next(iter(parts.values()))
                found[phase] = {
                    key: sum(shares[name] * each[key] for name, each in parts.items())
                    for key in keys
                }
        return found

    def report(self, moved_bytes: int) -> dict[str, Any]:
        """As of one memory, with what each is by itself: `memories`; `read`: the shares of the
        bytes of each phase that lie in each."""
        reports = {name: each.report(moved_bytes) for name, each in self._parts.items()}
        errors = [each.pop("throughput_ci95", 0.0) for each in reports.values()]
        whole: dict[str, Any] = {
            key: value for key, value in reports[MAIN].items()
            if key not in ("phases", "simulated_share", "probes", "simulated_bytes", "probe_wall_s",
                           "in_motion")
        } | self.in_motion()  # fmt: skip
        simulated = [each for each in reports.values() if "probes" in each]
        for key in ("probes", "simulated_bytes", "probe_wall_s", "simulated_share"):
            if simulated:
                whole[key] = sum(each[key] for each in simulated)
        if any(errors):
            whole["throughput_ci95"] = math.hypot(*errors)
        for key, worst in (("writes_a_day", max), ("years", min)):
            if worn := [each[key] for each in reports.values() if each.get(key)]:
                whole[key] = worst(worn)
        return (
            whole
            | {
                "efficiency": {
                    name: share
                    for name, share in self.efficiency._asdict().items()
                    if share < HIDDEN
                },
                "memories": reports,
                "read": self._read(),
            }
            | ({"moved_tokens": self._moved} if self._card.placement.moves else {})
        )


def _has(card: CardMemories, space: CardSpace, what: What) -> set[str]:
    """The memories that have any of it."""
    return {name for name, share in card.placement.held(what, space).items() if share}


def _phases_of(step: Step) -> list[str]:
    has = {"attention": len(step.decode), "prefill": step.chunks,
           "migration": step.migrations or step.aged}  # fmt: skip
    return ["weights", *(phase for phase, there in has.items() if there)]


def _batch(engine: Engine, requests: IntArray, routed: int) -> PlacedBatch:
    """What a step reads of these requests; of layers of several kinds, as those of the first."""
    allocator = engine.allocator

    def units() -> tuple[IntArray, IntArray]:
        each = [allocator.layer_units(request, 0) for request in requests.tolist()]
        if not each:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        start, tokens = (np.concatenate([one[n] for one in each]) for n in range(2))
        return start, tokens

    return PlacedBatch(allocator.stored[requests], units, routed)
