"""A plain run: the core's state out of the objects of a `Simulation`, and what Python does between
two of its calls: rows are summed up, probes taken, bounds learnt."""

from __future__ import annotations

import os
from itertools import islice
from typing import Any

import numpy as np

from policies.allocators.capabilities import Migration
from policies.allocators.score import PERIOD, Guess
from policies.engines.scheduled_step import STEP_LIMITS, Chunk, Step
from policies.memory.fidelity import AGAIN
from policies.memory.sampling import ANOTHER, SampledMemory
from policies.serving.counted_runs import RUNS as RUNS_COUNTED
from policies.serving.plain.core import core
from policies.serving.plain.plain_state import (
    BLOCKS,
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
    RUNS,
    TOKENS,
    WANT,
    WARM,
    Blocks,
    PlainPools,
    PlainQueue,
    PlainRequests,
    PlainRuns,
    holes,
    no_blocks,
    no_pools,
    no_runs,
    rows,
)
from policies.serving.plain.text_names import of_texts, sharing_requests
from policies.serving.plain.why_not import CLIENTS, IDEAL, ODMA, PAGED, SWITCH, named, why_not
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
    PlainRun(simulation).run()
    return True


def compile_core() -> None:
    """Compile the core, which is else done when it is first needed: a run of no requests."""
    whole, real, truth = np.zeros(1, np.int64), np.zeros(1), np.zeros(1, np.bool_)
    wide = np.zeros((1, 1), np.int64)
    requests = PlainRequests(
        whole, whole, whole, whole, whole, truth, whole, real, real, real, real, whole, whole
    )
    core(
        np.zeros(1, NOW), np.zeros(1, RULES), np.zeros(len(PHASES), CLOCK), requests,
        PlainQueue(
            real, whole, whole, whole, wide, wide, whole, real, whole, whole, whole, whole, whole
        ),
        no_blocks(), no_runs(), rows(MOST_ROUNDS),
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
        self._now, self._rules = np.zeros(1, NOW), np.zeros(1, RULES)
        self._clocks = np.zeros(len(PHASES), CLOCK)
        self._requests = self._of_requests()
        self._queue = self._of_arrivals()
        self._rows = rows(MOST_ROUNDS)
        self._blocks, self._runs = no_blocks(), no_runs()
        self._bounds: list[tuple[int, ...]] = []
        """Of each epoch."""
        self._rule_times()
        if named(self._allocator) == PAGED:
            self._blocks = self._of_blocks(self._allocator)
        elif named(self._allocator) == IDEAL:
            self._runs = self._of_tokens(self._allocator)
        else:
            self._runs = self._of_runs(self._allocator)
        self._now["seen"] = -1
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
                self._runs, self._rows,
            )  # fmt: skip
            if self._rules["kind"][0] == BUCKETS and why not in (WANT, PROBE):
                self._learn()
            if why == WANT:
                self._want(int(state["asked"]))
            elif why == PROBE:
                self._probe()
            elif why == KEEP:
                self._blocks = _more_kept(self._blocks, state)
            elif why == NEVER:
                raise engine.line.never_fits(int(state["asked"]))
            elif why == FUTILE:
                raise engine.futile(self._futile())
            elif why != LEARN:
                self._flush()
            if why == WARM:
                self._warm()
        self._finish()

    # the state at the beginning

    def _of_requests(self) -> PlainRequests:
        engine, allocator, times = self._engine, self._allocator, self._metrics.requests
        count = len(engine.left)
        return PlainRequests(
            engine.prompt, engine.output, engine.left, allocator.stored, allocator.reserved,
            allocator.resident, engine.reserved_ever, engine.run_tokens, times.arrival_s,
            times.first_s, times.end_s, np.zeros(count, np.int64), np.zeros(count, np.int64),
        )  # fmt: skip

    def _of_arrivals(self) -> PlainQueue:
        engine, source = self._engine, self._simulation.source
        coming = sorted(iter(source.next, None))
        count, cap, rules = source.count, engine.cap, self._rules[0]
        rules["count"], rules["warmup"] = count, self._metrics.warmup
        rules["budget"], rules["cap"] = engine.budget, cap
        rules["slots"], rules["most_futile"] = self._allocator.slots, engine.progress._most
        self._now["left_then"] = -1
        self._now["coming"] = len(coming)
        several = min(cap, count) + 1
        coming_s, arriving = np.zeros(count), np.zeros(count, np.int64)
        if coming:
            coming_s[: len(coming)], arriving[: len(coming)] = zip(*coming, strict=True)
        one = np.zeros(1, np.int64)
        queue = PlainQueue(
            coming_s, arriving, np.zeros(count + 1, np.int64), np.zeros(several, np.int64),
            np.zeros((several, 4), np.int64), np.zeros((2 * several, 5), np.int64),
            np.zeros(count, np.int64), np.zeros(1), one[:0], one, one, one, one,
        )  # fmt: skip
        return queue if named(source) != CLIENTS else self._of_clients(queue, source)

    def _of_clients(self, queue: PlainQueue, source: Any) -> PlainQueue:
        count, rules = len(self._engine.left), self._rules[0]
        rules["answers"], rules["clients"] = True, source.more
        rules["sessions"], rules["last_s"] = source._sessions, source._last_s
        following, sample = np.full((2, count), -1, np.int64)
        head, unanswered = np.arange(count), np.ones(count, np.int64)
        for before, request in source._following.items():
            following[before] = request
        for each in source._samples.values():
            head[each], unanswered[each[0]] = each[0], len(each)
            sample[each[:-1]] = each[1:]
        return queue._replace(
            think_s=source._think_s, to_send=np.array(source._to_send, np.int64),
            following=following, head=head, sample=sample, unanswered=unanswered,
        )  # fmt: skip

    def _rule_times(self) -> None:
        steps: Any = self._replica._steps
        rules = self._rules[0]
        work, law, products = steps.work, steps._law, steps._products
        launch_ns, layer_ns = steps._launch_ns
        values = {
            "attention_flops": work._attention_flops, "kv_bytes": work.kv_bytes,
            "row_flops": work._row_flops, "layer_flops": work._layer_flops,
            "head_flops": work._head_flops, "weight_bytes": work._all_weight_bytes,
            "chunk_flops": work._chunk_flops, "more_flops": work._more_flops,
            "vector_rows": law.vector_rows, "vector_columns": law.vector_columns,
            "tile": law.tile, "kernel_bytes": steps._kernel_bytes, "bandwidth": steps.bandwidth,
            "kv_bandwidth": steps._kv_bandwidth, "left": steps._left, "slowdown": steps._slowdown,
            "beside_chunk": law.beside_chunk, "decode_rate": products.decode_rate,
            "prefill_rate": products.prefill_rate, "dense_rate": products._dense_rate,
            "vector_times": products._vector_times, "attend_rate": steps._rates["attend"],
            "attend_prefill_rate": steps._rates["attend_prefill"], "law_weights": law.weights,
            "overhead_s": (launch_ns + work._layers * layer_ns) * 1e-9, "rounds": MOST_ROUNDS,
        }  # fmt: skip
        for name, value in values.items():
            rules[name] = value

    def _of_blocks(self, allocator: Any) -> Blocks:
        pool, tables, rules = allocator.pool, allocator.tables, self._rules[0]
        order: Any = pool.order
        block, state = allocator.block, self._now[0]
        count = len(self._requests.left)
        longest = int((self._engine.prompt + self._engine.output).max(initial=1))
        width, several = -(-longest // block) + 1, len(self._queue.batch)
        while len(tables.count) < several:
            tables._more_rows()
        tables._widen(width)
        rules["kind"], rules["block"], rules["space"] = BLOCKS, block, pool.size
        rules["spared"], rules["spared_idle"] = allocator.spared, allocator.spared_idle
        rules["keeps"] = allocator.options.cached_recompute
        state["free"], state["head"], state["tail"] = order.free, order._head, order._tail
        state["rows_unused"], state["kept_unused"] = len(tables.count), several
        kept = np.zeros((several, width), np.int64)
        blocks = no_blocks()._replace(
            table=tables._table[0], places=tables.count, tokens=tables.tokens, runs=tables.runs,
            owner=tables.owner, row=allocator.row,
            rows_unused=np.arange(len(tables.count))[::-1].copy(), log=order._log,
            place=order._place, written=pool.written, reused=np.zeros(count, np.int64),
            kept_row=np.full(count, -1, np.int64), kept=kept, kept_written=kept.copy(),
            kept_count=np.zeros(several, np.int64), kept_unused=np.arange(several),
            handed=np.zeros(order.blocks + 1, np.int64),
            first=np.zeros(max(MOST_ROUNDS, block) + 2, np.int64),
            shares=np.zeros(count, np.bool_),
        )  # fmt: skip
        sharing = sharing_requests(self._engine.requests)
        if not len(sharing):
            return blocks
        rules["texts"], rules["once"] = True, self._metrics._slots._shares
        return of_texts(self._engine, allocator, sharing, blocks)

    def _of_tokens(self, allocator: Any) -> PlainRuns:
        rules = self._rules[0]
        rules["kind"], rules["runs_each"] = TOKENS, allocator.layout.parts
        rules["whole_output"] = allocator.options.admit_on == "output"
        self._now["free_slots"] = allocator.slots
        return no_runs()._replace(held=allocator.left)

    def _of_runs(self, allocator: Any) -> PlainRuns:
        rules, state, options = self._rules[0], self._now[0], allocator.options
        sizes, learns = allocator.sizes, named(allocator.sizes) == f"{ODMA}Sizes"
        own, parted = sizes._pools if learns else sizes, options.space == "partitioned"
        space: Any = (own._large if parted else own._all) if learns else sizes.space
        apart = own._large if learns else space
        slabs, arena = hasattr(space, "_common"), getattr(space, "_common", space)
        count, several = len(self._requests.left), 2 * len(self._queue.batch) + 4
        rules["kind"] = BUCKETS if learns else RUNS
        rules["runs_each"], rules["space"] = allocator.layout.parts, space.size
        rules["slabs"], rules["best_fit"] = slabs, arena.fit == "best"
        rules["borrow"] = space._borrow if slabs else 1.0
        rules["parted"], rules["apart"] = parted, parted or apart is not space
        rules["apart_at"] = apart.start
        rules["repartitions"] = parted and own.repartition != "never"
        rules["at_once"] = parted and own.repartition == "on_refresh"
        rules["overflows"] = options.pool_overflow if learns else False
        rules["joins"] = ("none", "free", "copied").index(options.compaction)
        most = options.compaction_tokens
        rules["joins_most"] = -1 if most is None else most
        state["free_slots"] = sizes.free
        state["fit_changes"] = -1
        one = np.zeros(1, np.int64)
        by_request = {
            name: np.zeros(count if learns else 1, np.int64)
            for name in ("bucket", "raw", "raw_slots", "large_slots")
        }
        runs = PlainRuns(
            start=allocator.start,
            common=holes(arena.start, several, 0 if parted else arena.size),
            pools=of_pools(own, several, options.align) if parted else no_pools(),
            kept=holes(apart.start, several, apart.size), slab_start=np.zeros(several, np.int64),
            slab_size=np.zeros(several, np.int64), slab_blocks=np.zeros(several, np.int64),
            slab_free=np.zeros(several, np.int64), leaving=np.zeros((several, 2), np.int64),
            epoch=np.full(count, -1, np.int64), slots=np.zeros(count, np.int64),
            unsure=np.zeros(count, np.bool_), bounds=one, held=one, moved=one,
            gaps=np.zeros((several, 2), np.int64), window=np.zeros(2, np.int64),
            order=np.zeros(several, np.int64), slid=np.zeros(several, np.int64),
            slid_from=np.full(count, -1, np.int64), fit_size=np.zeros(count, np.int64),
            guess=np.full((count if learns else 1, 6), -1, np.int64), **by_request,
        )  # fmt: skip
        if not learns:
            runs.slots[:] = allocator.needs(self._requests.prompt, self._requests.output)
            return runs
        rules["buckets"], rules["align"] = options.buckets, options.align
        rules["total"] = options.bucket_on == "total"
        rules["next_larger"] = options.large_full == "next_larger"
        rules["preempts_last"] = options.large_full == "preempt_last"
        rules["bucket_larger"] = options.bucket_full == "next_larger"
        self._bounds = [sizes.bounds]
        state["to_learn"] = _until_learning(sizes)
        return runs._replace(held=sizes._held, moved=sizes._moves, bounds=np.array(sizes.bounds))

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
        moves = sums.migrations > 0
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
            state["to_learn"] = _until_learning(sizes)
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

    def _futile(self) -> str:
        """As `Progress.preempted`."""
        times = self._requests.futile
        most = np.flatnonzero(times == times.max())
        request = int(most[self._requests.futile_turn[most].argmin()])
        return f"request {request} was preempted {int(times.max())} times without progress"

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
            self._allocator.caching.asked_tokens = int(state["asked_tokens"])
            self._allocator.caching.hit_tokens = int(state["hit_tokens"])


def of_pools(pools: Any, several: int, align: int) -> PlainPools:
    """Of `PartitionedPools` that are empty. several: holes of a pool at most."""
    each, number = pools._pools, len(pools._pools)
    most = np.array([pool.slots // align + 1 for pool in each])
    columns = np.array([
        (pool.start, pool.slots, pool.block, pool._next, pool.used) for pool in each
    ]).T.copy()  # fmt: skip
    rest = np.zeros((2, number, several), np.int64)
    made = PlainPools(
        columns[0], columns[1], columns[2], columns[3], columns[4], np.cumsum(most) - most,
        np.array([len(pool._free) for pool in each]), np.zeros(most.sum(), np.int64),
        rest[0], rest[1], np.zeros((number, 1), np.int64), np.zeros((several, number), np.int64),
    )  # fmt: skip
    for nth, pool in enumerate(each):
        first, gaps = made.free_at[nth], pool._rest.holes
        made.free[first : first + len(pool._free)] = pool._free
        made.rest_number[nth] = len(gaps)
        for at, (start, size) in enumerate(gaps):
            made.rest_start[nth, at], made.rest_size[nth, at] = start, size
    return made


def _taken(state: Any, field: str) -> int:
    """What was counted since the last time."""
    amount = int(state[field])
    state[field] = 0
    return amount


def _until_learning(sizes: Any) -> int:
    """Requests that end until the policy must be told."""
    ended, refresh = sizes._score._counts["ended"], sizes.buckets.refresh
    until = PERIOD - ended % PERIOD
    if refresh and sizes.buckets._left:
        until = min(until, refresh - sizes.buckets._seen % refresh)
    return until


def _more_kept(blocks: Blocks, state: Any) -> Blocks:
    """With twice as many rows for blocks of preempted requests."""
    more = len(blocks.kept)
    kept, written = (
        np.concatenate((each, np.zeros_like(each))) for each in (blocks.kept, blocks.kept_written)
    )
    unused = np.zeros(2 * more, np.int64)
    free = int(state["kept_unused"])
    unused[:free] = blocks.kept_unused[:free]
    unused[free : free + more] = np.arange(more, 2 * more)
    state["kept_unused"] = free + more
    count = np.concatenate((blocks.kept_count, np.zeros(more, np.int64)))
    return blocks._replace(kept=kept, kept_written=written, kept_count=count, kept_unused=unused)
