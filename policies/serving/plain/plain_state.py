"""What the compiled core knows of a run: arrays that it shares with Python, and its own.

Requests are known by their number. What a NamedTuple here takes from an allocator, an engine or the
metrics is their own array, so that Python looks at the same state between two calls.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from policies.requests.requests import FloatArray, IntArray
from policies.serving.stretch_rows import MOST_ROWS, MOST_STEPS

BoolArray = NDArray[np.bool_]
ENDED, ROWS, WARM, WANT, PROBE, LEARN, KEEP, NEVER, FUTILE = range(9)
"""Why the core returns: all requests have ended; rows are full; the warm-up is over; it is not
known what `asked` should have; a probe is due; the policy learns from those that ended; rows of
kept blocks are few; `asked` never fits; preemptions lead nowhere."""
BEGIN, ADMIT, COUNT, FIT, LOOK, GO = range(6)
"""Where in a step it goes on."""
BLOCKS, RUNS, BUCKETS = range(3)
"""Kinds of allocators: blocks as tokens come, runs of a known size, runs of buckets."""
KV_MEMORY, SEQUENCE_CAP, TOKEN_BUDGET, OFFERED_LOAD = range(4)
"""As `STEP_LIMITS`."""
PHASES = ("attention", "prefill", "migration")
"""Phases that have a clock of their own."""

_INT = np.int64
NOW = np.dtype([
    *((name, _INT) for name in (
        "stage",
        # the line and the batch
        "first", "waiting", "next", "running", "partial", "ended", "asked",
        # the step that is being made
        "decoding", "budget", "before", "chunks", "begun", "chunked", "pairs", "behind", "moves",
        "preempted", "cached", "limit", "context", "fitting",
        # counted over the run, and over what Python has not added yet
        "changes", "made", "close_made", "close_more", "all_preempted", "left_then", "turn",
        "new_preempted", "new_prefilled", "new_cached", "new_migrations", "new_migrated",
        "weight_bytes", "read_bytes", "written_bytes", "chunk_read_bytes", "chunk_written_bytes",
        "migrated_bytes",
        "rows", "steps", "log", "to_learn",
        # blocks
        "free", "head", "tail", "rows_unused", "kept_unused",
        # runs
        "free_slots", "reserved", "slabs", "leaving", "slid", "large", "epoch",
        "fit_changes", "fit_free", "fit_slots",
        # probes
        "seen", "step",
    )),
    *((name, np.float64) for name in (
        "now_s", "idle_s", "close_s", "busy_s", "migration_s",
        "weights_share", "attention_share", "prefill_share", "migration_share",
        "spent_attention", "spent_prefill", "spent_migration", "spent_all",
    )),
])  # fmt: skip
"""What changes. `first`: place of the head of the line in its ring; `before`: of those that run,
those from before admission; `pairs`, `behind`: of chunks, pairs of tokens and tokens stored before;
`close_*`: of `Metrics.close`; `turn`: preemptions judged; `seen`: `changes` at the last look for a
probe; `spent_*`: seconds since the warm-up that hang on a phase; `epoch`: counts bounds."""
RULES = np.dtype([
    *((name, _INT) for name in (
        "kind", "count", "warmup", "budget", "cap", "slots", "most_futile",
        "block", "spared", "spared_idle", "keeps",
        "space", "slabs", "best_fit", "buckets", "total", "align", "next_larger", "bucket_larger",
        "preempts_last", "apart", "apart_at", "overflows", "joins", "joins_most",
        "runs_each", "sampled", "rounds",
        "attention_flops", "kv_bytes", "row_flops", "layer_flops", "head_flops", "weight_bytes",
        "chunk_flops", "vector_rows", "vector_columns", "tile", "kv_layers",
    )),
    *((name, np.float64) for name in (
        "borrow", "kernel_bytes", "bandwidth", "kv_bandwidth", "left", "slowdown", "beside_chunk",
        "decode_rate", "prefill_rate", "dense_rate", "vector_times", "attend_rate",
        "attend_prefill_rate", "overhead_s", "law_weights", "more_flops",
        "spacing", "change", "another", "again",
    )),
])  # fmt: skip
"""What stays: options, sizes and rates. `apart`: large reservations have a space of their own,
which begins at `apart_at`; `joins`: of `plain_joining`, copying at most `joins_most` tokens at a
time, if that is not below 0."""
CLOCK = np.dtype([
    *((name, _INT) for name in (
        "given", "taken", "due", "last", "begin", "most", "more", "known", "wide",
    )),
    *((name, np.float64) for name in ("decoding", "extents", "run", "mean", "half")),
])  # fmt: skip
"""Of `policies.memory.sampling.ProbeClock` and what `SampledMemory._wants` says of its phase:
`known`: two probes count; `half`: of the interval, below 0 if there is none."""


class PlainRequests(NamedTuple):
    """By request, int64 or float64 (n,): of the engine, the allocator and the metrics."""

    prompt: IntArray
    output: IntArray
    left: IntArray
    stored: IntArray
    reserved: IntArray
    resident: BoolArray
    reserved_ever: IntArray
    run_tokens: FloatArray
    first_s: FloatArray
    end_s: FloatArray
    futile: IntArray
    """Preemptions of each since they were judged."""
    futile_turn: IntArray
    """When the first of these was."""


class PlainQueue(NamedTuple):
    """Who comes, waits and runs, and what the step does with them."""

    arrival_s: FloatArray
    """Of all that will come, in order."""
    arriving: IntArray
    line: IntArray
    """A ring."""
    batch: IntArray
    chunks: IntArray
    """Columns of `Chunk`."""
    moves: IntArray
    """Columns of `Migration`."""
    log: IntArray
    """Requests that ended since the policy learnt."""


class Blocks(NamedTuple):
    """Of `BlockTables`, `BlockPool` and its `Line`; `kept`: blocks of the last residence of
    preempted requests, and how often each had been handed out."""

    table: IntArray
    places: IntArray
    tokens: IntArray
    runs: IntArray
    owner: IntArray
    row: IntArray
    rows_unused: IntArray
    log: IntArray
    place: IntArray
    written: IntArray
    reused: IntArray
    """By request: blocks that it found at its admission."""
    kept_row: IntArray
    """By request; -1: nothing is kept."""
    kept: IntArray
    kept_written: IntArray
    kept_count: IntArray
    kept_unused: IntArray
    handed: IntArray
    """Blocks handed out at once."""
    first: IntArray
    """Of each round."""


class Holes(NamedTuple):
    """Of an `Arena`, by address; `number`, int64 (1,): how many there are."""

    start: IntArray
    size: IntArray
    number: IntArray


class PlainRuns(NamedTuple):
    """Of a `ContiguousAllocator` and its space: holes; slabs with a bit for each free block, in no
    order. What a request should have is known while `epoch` is that of `NOW`."""

    start: IntArray
    common: Holes
    kept: Holes
    """Of the space of large reservations."""
    slab_start: IntArray
    slab_size: IntArray
    slab_blocks: IntArray
    slab_free: IntArray
    leaving: IntArray
    """(start, size) of places that requests have left, which are free when the step is over."""
    epoch: IntArray
    slots: IntArray
    bucket: IntArray
    raw: IntArray
    raw_slots: IntArray
    unsure: BoolArray
    large_slots: IntArray
    bounds: IntArray
    held: IntArray
    """Slots of all places of a residence; and how often a request moved."""
    moved: IntArray
    gaps: IntArray
    """(slots, tokens) of the runs behind each hole; this and the next two are of one compaction."""
    window: IntArray
    order: IntArray
    slid: IntArray
    """Requests whose runs slid in this step; and by request from where, or -1."""
    slid_from: IntArray
    guess: IntArray
    """By request at its first admission: `epoch`, -1 before, then as `Guess` from `predicted`
    on."""


class Rows(NamedTuple):
    """Stretches that are not summed up yet, columns of `Stretches`; whether requests then wait; and
    seconds of all their steps."""

    stretches: FloatArray
    waits: BoolArray
    times_s: FloatArray


def rows(most_rounds: int) -> Rows:
    """Empty."""
    return Rows(
        np.zeros((MOST_ROWS + 1, 22)), np.zeros(MOST_ROWS + 1, np.bool_),
        np.zeros(MOST_STEPS + most_rounds + 2),
    )  # fmt: skip


def no_blocks() -> Blocks:
    """Of a run whose allocator has none."""
    one = np.zeros(1, np.int64)
    wide = np.zeros((1, 1), np.int64)
    arrays: dict[str, Any] = dict.fromkeys(Blocks._fields, one)
    return Blocks(**arrays | {"table": wide, "kept": wide, "kept_written": wide})


def no_runs() -> PlainRuns:
    """Of a run whose allocator has none."""
    one = np.zeros(1, np.int64)
    wide = np.zeros((1, 1), np.int64)
    arrays: dict[str, Any] = dict.fromkeys(PlainRuns._fields, one)
    arrays |= {"unsure": np.zeros(1, np.bool_), "leaving": wide, "guess": wide, "gaps": wide}
    return PlainRuns(**arrays | {"common": holes(0, 1), "kept": holes(0, 1)})


def holes(start: int, several: int, size: int = 0) -> Holes:
    """So many at most; at first one of `size` slots, if any."""
    made = Holes(*(np.zeros(each, np.int64) for each in (several, several, 1)))
    made.start[0], made.size[0], made.number[0] = start, size, size > 0
    return made
