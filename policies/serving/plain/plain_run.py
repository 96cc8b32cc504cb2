"""A plain run: what Python does between two calls of the core: rows are summed up, probes taken,
bounds learnt."""

from __future__ import annotations

import os
from itertools import islice
from typing import Any

import numpy as np

from policies.allocators.capabilities import Migration
from policies.allocators.score import Guess
from policies.engines.scheduled_step import STEP_LIMITS, Chunk, Step
from policies.memory.fidelity import AGAIN
from policies.memory.sampling import ANOTHER, SampledMemory
from policies.serving.counted_runs import RUNS as RUNS_COUNTED
from policies.serving.plain.core import core
from policies.serving.plain.plain_fleet import PlainFleet
from policies.serving.plain.plain_more import futile, more_kept
from policies.serving.plain.plain_start import Start, until_learning
from policies.serving.plain.plain_state import (
    BUCKETS,
    CLOCK,
    END,
    ENDED,
    FUTILE,
    KEEP,
    LEARN,
    NEVER,
    NOW,
    PHASES,
    PROBE,
    RULES,
    WANT,
    WARM,
    PlainQueue,
    PlainRequests,
    SharesBySize,
    no_blocks,
    no_runs,
    rows,
)
from policies.serving.plain.why_not import SWITCH, why_not
from policies.serving.replica import MOST_ROUNDS
from policies.serving.stretch_rows import Stretches

FEW = 64
"""A run of fewer requests does not wait until the core is compiled or read from disk (assumed)."""
AHEAD = 8
"""Requests in line of which it is said at once what they should have."""


def ran_plain(simulation: Any) -> bool:
    """Run a `Simulation` that has not begun, if the core knows all of it; whether it did."""
    why = why_not(simulation)
    compiled: Any = core
    few = simulation.source.count < FEW and not compiled.signatures and SWITCH not in os.environ
    if not why and few:
        why = "few requests"
    RUNS_COUNTED[why] += 1
    if why:
        return False
    (PlainRun if len(simulation.nodes[0].own) == 1 else PlainFleet)(simulation).run()
    return True


def compile_core() -> None:
    """Compile the core, which is else done when it is first needed: a run of no requests."""
    whole, real, truth = np.zeros(1, np.int64), np.zeros(1), np.zeros(1, np.bool_)
    wide = np.zeros((1, 1), np.int64)
    requests = PlainRequests(
        whole, whole, whole, whole, whole, truth, whole, real, real, real, real, whole, whole
    )
    core(
        np.zeros(2, NOW), np.zeros(1, RULES), np.zeros(len(PHASES), CLOCK), requests,
        PlainQueue(
            real, whole, whole, whole, wide, wide, whole, real, whole, whole, whole, whole, whole
        ),
        no_blocks(), no_runs(), rows(MOST_ROUNDS), SharesBySize(real[:0], real[:0]),
    )  # fmt: skip


class PlainRun:
    """Of a simulation of one card."""

    def __init__(self, simulation: Any) -> None:
        self._simulation, self._metrics = simulation, simulation.metrics
        self._node = simulation.nodes[0]
        self._replica = self._node.own[0]
        self._engine = self._replica.engine
        self._memory: Any = self._replica.memory
        self._allocator: Any = self._engine.allocator
        start = Start(simulation, self._replica)
        self._now, self._rules, self._clocks = start.now, start.rules, start.clocks
        self._requests, self._queue, self._rows = start.requests, start.queue, start.rows
        self._blocks, self._runs, self._curve = start.blocks, start.runs, start.curve
        self._bounds = start.bounds
        """Of each epoch."""
        self._look()

    def run(self) -> None:
        """Until the last request has ended. Raises DescriptionError as the general way does."""
        simulation, engine, state = self._simulation, self._engine, self._now[0]
        for watcher in simulation.watchers:
            watcher.join(simulation)
        why = -1
        while why != ENDED:
            why = core(
                self._now, self._rules, self._clocks, self._requests, self._queue, self._blocks,
                self._runs, self._rows, self._curve,
            )  # fmt: skip
            if self._rules["kind"][0] == BUCKETS and why not in (WANT, PROBE):
                self._learn()
            if why == WANT:
                self._want(int(state["asked"]))
            elif why == PROBE:
                self._probe()
            elif why == KEEP:
                self._blocks = more_kept(self._blocks, state)
            elif why == NEVER:
                raise engine.line.never_fits(int(state["asked"]))
            elif why == FUTILE:
                raise engine.futile(futile(self._requests))
            elif why != LEARN:
                self._flush()
            if why == WARM:
                self._warm()
        self._finish()

    # between two calls

    def _flush(self) -> None:
        """What the rows say is summed up, and told to who watches them."""
        state, sums = self._now[0], self._metrics._sums
        sums.output_tokens = int(state["made"])
        sums.limit_s["idle"] = float(state["idle_s"])
        self._metrics.ended = int(state["ended"])
        counted = {
            "preemptions": "new_preempted", "prefill_tokens": "new_prefilled",
            "cached_tokens": "new_cached", "migrations": "new_migrations",
            "migrated_tokens": "new_migrated",
        }  # fmt: skip
        for name, field in counted.items():
            setattr(sums, name, getattr(sums, name) + _taken(state, field))
        moves = self._rules["copies"][0] and sums.migrations > 0
        if moves:
            sums.phase_s["migration"] = float(state["migration_s"])
        for phase, kind, field in (
            ("weights", "weights", "weight_bytes"), ("attention", "kv_read", "read_bytes"),
            ("attention", "kv_written", "written_bytes"),
            ("prefill", "kv_read", "chunk_read_bytes"),
            ("prefill", "kv_written", "chunk_written_bytes"),
        ):  # fmt: skip
            sums.moved[phase, kind] += _taken(state, field)
        if moves:
            moved = _taken(state, "migrated_bytes")
            sums.moved["migration", "kv_read"] += moved
            sums.moved["migration", "kv_written"] += moved
        count, steps = int(state["rows"]), int(state["steps"])
        state["rows"] = state["steps"] = 0
        if not count:
            return
        stretches = Stretches(*self._rows.stretches[:count].T.copy())
        self._metrics.passed(stretches, self._rows.times_s[:steps].copy())
        for watcher in self._simulation.watchers:
            watcher.rows(self._node, stretches, self._rows.waits[:count])

    def _warm(self) -> None:
        """The warm-up is over."""
        self._metrics.begin = (float(self._now["now_s"][0]), self._metrics.sums.copy())
        self._hand_over()
        self._memory.mark()
        self._look()

    def _probe(self) -> None:
        """Phases of the step that is being made are looked at."""
        state, queue = self._now[0], self._queue
        chunks = queue.chunks[: int(state["chunks"])].tolist()
        moves = queue.moves[: int(state["moves"])].tolist()
        step = Step(
            queue.batch[: int(state["decoding"])].copy(), int(state["context"]),
            [Chunk(request, start, tokens, bool(last)) for request, start, tokens, last in chunks],
            [Migration(*move) for move in moves], int(state["preempted"]),
            STEP_LIMITS[int(state["limit"])], int(state["cached"]),
        )  # fmt: skip
        self._hand_over()
        self._memory._changes = int(state["seen"])
        self._memory.observe(step, self._engine)
        state["seen"] = state["changes"]
        self._look()

    def _hand_over(self) -> None:
        """Python knows what the core has done."""
        state, engine, memory = self._now[0], self._engine, self._memory
        engine.changes = int(state["changes"])
        memory._steps = int(state["step"])
        if isinstance(memory, SampledMemory):
            spent = memory._spent_s
            for name in (*PHASES, "all"):
                spent[name] = float(state[f"spent_{name}"])

    def _look(self) -> None:
        """The core knows what the memory has found, and when it looks again."""
        state, memory = self._now[0], self._memory
        for name in ("weights", *PHASES):
            state[f"{name}_share"] = getattr(memory.efficiency, name)
        if not isinstance(memory, SampledMemory):
            return
        spec, rules = memory._spec, self._rules[0]
        rules["sampled"], rules["again"], rules["another"] = 1, spec.again, ANOTHER
        rules["spacing"], rules["change"] = spec.spacing, spec.change
        for name in (*PHASES, "all"):
            state[f"spent_{name}"] = memory._spent_s[name]
        for phase, clock in zip(PHASES, self._clocks, strict=True):
            known = memory._clocks[phase]
            clock["given"] = getattr(spec, phase) is not None
            clock["taken"], clock["due"], clock["last"] = known._taken, known.due, known._last
            clock["begin"], clock["most"], clock["more"] = known._begin, spec.max_probes, AGAIN
            if known._placed:
                clock["decoding"], clock["extents"], clock["run"] = known._placed
            clock["known"] = len(memory._results[phase]) - memory._marks[phase] >= 2
            if clock["known"]:
                clock["wide"] = memory._wants(phase)[0]
                mean, half = memory._interval(phase)
                clock["mean"], clock["half"] = mean, -1.0 if half is None else half

    def _want(self, asked: int) -> None:
        """What a request, and those behind it in line, should have by the bounds of now."""
        state, queue, runs = self._now[0], self._queue, self._runs
        sizes, epoch = self._allocator.sizes, int(state["epoch"])
        line, first = queue.line, int(state["first"])
        places = range(first, first + int(state["waiting"]))
        behind = (int(line[place % len(line)]) for place in places)
        lacking = (each for each in behind if runs.epoch[each] != epoch)
        for request in {asked, *islice(lacking, AHEAD)}:
            demand = self._engine.demand(request)
            wanted = sizes._wanted[request] = sizes._want(demand)
            raw = sizes._slots_in(demand, wanted.raw)
            runs.epoch[request], runs.slots[request] = epoch, wanted.slots
            runs.bucket[request], runs.raw[request] = wanted.bucket, wanted.raw
            runs.raw_slots[request], runs.unsure[request] = raw, wanted.unsure
            runs.large_slots[request] = sizes._large(demand)

    def _learn(self) -> None:
        """The policy is told who has ended, in order."""
        state, sizes, runs = self._now[0], self._allocator.sizes, self._runs
        ended = self._queue.log[: int(state["log"])].tolist()
        state["log"] = 0
        engine = self._engine
        for request in ended:
            epoch, predicted, raw, asked, held, large = runs.guess[request].tolist()
            sizes._guesses[request] = Guess(
                self._bounds[epoch], predicted, raw, asked, held, bool(large)
            )
            engine.demands.pop(request, None)
            refreshes = sizes._refreshes
            sizes.finished(request, int(engine.prompt[request]), int(engine.output[request]))
            if sizes._refreshes != refreshes and self._rules["repartitions"][0]:
                runs.pools.wanted[int(state["resized"])] = sizes._sizes
                state["resized"] += 1
            if sizes.bounds != self._bounds[-1]:
                self._bounds.append(sizes.bounds)
        if ended:
            state["to_learn"] = until_learning(sizes)
        if state["epoch"] != len(self._bounds) - 1:
            state["epoch"] = len(self._bounds) - 1
            self._runs = runs._replace(bounds=np.array(sizes.bounds))
        if state["ended"] < self._rules["count"][0] and state["stage"] != END:
            sizes._score.clock(self._next_s())

    def _next_s(self) -> float:
        """When the next step begins."""
        state, queue = self._now[0], self._queue
        now_s = float(state["now_s"])
        if state["running"] or state["waiting"]:
            return now_s
        return max(now_s, float(queue.coming_s[int(state["next"])]))

    def _finish(self) -> None:
        """The run is over."""
        state, simulation, replica = self._now[0], self._simulation, self._replica
        self._hand_over()
        made = int(state["close_made"]) + int(state["close_more"])
        self._metrics.close = (float(state["close_s"]), made)
        replica.now_s = simulation.now_s = float(state["now_s"])
        replica.served = int(state["ended"])
        self._node.busy_s[0] = state["busy_s"]
        self._node.preemptions[0] = state["all_preempted"]
        self._node.manager.card_of[self._queue.arriving] = 0
        if self._rules["texts"][0]:
            self._allocator.caching.looked_up_tokens = int(state["looked_up_tokens"])
            self._allocator.caching.hit_tokens = int(state["hit_tokens"])


def _taken(state: Any, field: str) -> int:
    """What was counted since the last time."""
    amount = int(state[field])
    state[field] = 0
    return amount
