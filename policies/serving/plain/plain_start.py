"""The state of a plain run as it begins, out of the objects of a `Simulation`."""

from __future__ import annotations

from typing import Any

import numpy as np

from policies.allocators.score import PERIOD
from policies.serving.plain.plain_state import (
    BLOCKS,
    BUCKETS,
    CLOCK,
    NOW,
    PHASES,
    RULES,
    RUNS,
    TOKENS,
    Blocks,
    PlainPools,
    PlainQueue,
    PlainRequests,
    PlainRuns,
    Rows,
    SharesBySize,
    holes,
    no_blocks,
    no_pools,
    no_runs,
    rows,
)
from policies.serving.plain.text_names import of_texts, sharing_requests
from policies.serving.plain.why_not import CLIENTS, IDEAL, MOST, ODMA, PAGED, V0, named
from policies.serving.replica import MOST_ROUNDS


class Start:
    """What the core needs of a simulation of one card that has not begun, or of one of several
    replicas, to which requests come when a router says so. kept: rows that they have in common."""

    def __init__(self, simulation: Any, replica: Any, kept: Rows | None = None) -> None:
        self._simulation, self._metrics = simulation, simulation.metrics
        self._engine = replica.engine
        self._allocator: Any = self._engine.allocator
        self.now, self.rules = np.zeros(2, NOW), np.zeros(1, RULES)
        self.rules["fleet"] = kept is not None
        self.clocks = np.zeros(len(PHASES), CLOCK)
        self.requests = self._of_requests()
        self.queue = self._of_arrivals()
        self.rows = rows(MOST_ROUNDS) if kept is None else kept
        self.blocks, self.runs = no_blocks(), no_runs()
        self.bounds: list[tuple[int, ...]] = []
        """Of each epoch."""
        steps: Any = replica._steps
        self.curve = SharesBySize(*(steps._shares or np.zeros((2, 0))))
        self._rule_times(steps)
        if named(self._allocator) == PAGED:
            self.blocks = self._of_blocks(self._allocator)
        elif named(self._allocator) == IDEAL:
            self.runs = self._of_tokens(self._allocator)
        else:
            self.runs = self._of_runs(self._allocator)
        self.now["seen"] = -1

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
        fleet = self.rules[0]["fleet"]
        coming = [] if fleet else sorted(iter(source.next, None))
        count, cap, rules = source.count, engine.cap, self.rules[0]
        rules["count"], rules["warmup"] = (MOST, 0) if fleet else (count, self._metrics.warmup)
        rules["budget"], rules["cap"] = engine.budget, cap
        rules["prefills_first"] = named(engine.scheduler) == V0
        rules["slots"], rules["most_futile"] = self._allocator.slots, engine.progress._most
        self.now["left_then"] = -1
        self.now["coming"] = len(coming)
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
        count, rules = len(self._engine.left), self.rules[0]
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

    def _rule_times(self, steps: Any) -> None:
        rules = self.rules[0]
        work, law, products = steps.work, steps._law, steps._products
        launch_ns, layer_ns = steps._launch_ns
        values = {
            "attention_flops": work._attention_flops, "kv_bytes": work.kv_bytes,
            "row_flops": work._row_flops, "layer_flops": work._layer_flops,
            "head_flops": work._head_flops, "weight_bytes": work._all_weight_bytes,
            "copies": work._copies,
            "chunk_flops": work._chunk_flops, "more_flops": work._more_flops,
            "vector_rows": law.vector_rows, "vector_columns": law.vector_columns,
            "tile": law.tile, "kernel_bytes": steps._kernel_bytes, "bandwidth": steps.bandwidth,
            "kv_bandwidth": steps._kv_bandwidth, "left": steps._left, "slowdown": steps._slowdown,
            "beside_chunk": law.beside_chunk, "decode_rate": products.decode_rate,
            "prefill_rate": products.prefill_rate, "dense_rate": products._dense_rate,
            "vector_times": products._vector_times, "attend_rate": steps._rates["attend"],
            "kv_layers": steps._kv_layers,
            "attend_prefill_rate": steps._rates["attend_prefill"], "law_weights": law.weights,
            "overhead_s": (launch_ns + work._layers * layer_ns) * 1e-9, "rounds": MOST_ROUNDS,
        }  # fmt: skip
        for name, value in values.items():
            rules[name] = value

    def _of_blocks(self, allocator: Any) -> Blocks:
        pool, tables, rules = allocator.pool, allocator.tables, self.rules[0]
        order: Any = pool.order
        block, state = allocator.block, self.now[0]
        count = len(self.requests.left)
        longest = int((self._engine.prompt + self._engine.output).max(initial=1))
        width, several = -(-longest // block) + 1, len(self.queue.batch)
        while len(tables.count) < several:
            tables._more_rows()
        rows_of, have = tables._table.shape[1:]
        if width > have:  # of memory that is not touched before it is used
            tables._table = np.zeros((1, rows_of, width), np.int64)
        rules["kind"], rules["block"], rules["space"] = BLOCKS, block, pool.size
        rules["spared"], rules["spared_idle"] = allocator.spared, allocator.spared_idle
        rules["keeps"] = allocator.options.cached_recompute
        rules["preempts_last"] = True
        state["free"], state["head"], state["tail"] = order.free, order._head, order._tail
        state["rows_unused"], state["kept_unused"] = len(tables.count), several
        blocks = no_blocks()._replace(
            table=tables._table[0], places=tables.count, tokens=tables.tokens, runs=tables.runs,
            owner=tables.owner, row=allocator.row,
            rows_unused=np.arange(len(tables.count))[::-1].copy(), log=order._log,
            place=order._place, written=pool.written, reused=np.zeros(count, np.int64),
            kept_row=np.full(count, -1, np.int64), kept=np.zeros((several, width), np.int64),
            kept_written=np.zeros((several, width), np.int64),
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
        rules = self.rules[0]
        rules["kind"], rules["runs_each"] = TOKENS, allocator.layout.parts
        rules["whole_output"] = allocator.options.admit_on == "output"
        rules["ahead"] = allocator.options.reserve == "output"
        rules["preempts_last"] = not rules["ahead"]
        self.now["short"] = -1
        self.now["free_slots"] = allocator.slots
        return no_runs()._replace(held=allocator.left)

    def _of_runs(self, allocator: Any) -> PlainRuns:
        rules, state, options = self.rules[0], self.now[0], allocator.options
        sizes, learns = allocator.sizes, named(allocator.sizes) == f"{ODMA}Sizes"
        own, parted = sizes._pools if learns else sizes, options.space == "partitioned"
        space: Any = (own._large if parted else own._all) if learns else sizes.space
        apart = own._large if learns else space
        slabs, arena = hasattr(space, "_common"), getattr(space, "_common", space)
        count, several = len(self.requests.left), 2 * len(self.queue.batch) + 4
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
            runs.slots[:] = allocator.needs(self.requests.prompt, self.requests.output)
            return runs
        rules["buckets"], rules["align"] = options.buckets, options.align
        rules["total"] = options.bucket_on == "total"
        rules["next_larger"] = options.large_full == "next_larger"
        rules["preempts_last"] = options.large_full == "preempt_last"
        rules["bucket_larger"] = options.bucket_full == "next_larger"
        self.bounds = [sizes.bounds]
        state["to_learn"] = until_learning(sizes)
        return runs._replace(held=sizes._held, moved=sizes._moves, bounds=np.array(sizes.bounds))


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


def until_learning(sizes: Any) -> int:
    """Requests that end until the policy must be told."""
    ended, refresh = sizes._score._counts["ended"], sizes.buckets.refresh
    until = PERIOD - ended % PERIOD
    if refresh and sizes.buckets._left:
        until = min(until, refresh - sizes.buckets._seen % refresh)
    return until
