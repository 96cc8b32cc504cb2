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
ShortArray = NDArray[np.int32]
ENDED, ROWS, WARM, WANT, PROBE, LEARN, KEEP, NEVER, FUTILE, PAUSE = range(10)
"""Why the core returns: all requests have ended; rows are full; the warm-up is over; it is not
known what `asked` should have; a probe is due; the policy learns from those that ended; rows of
kept blocks are few; `asked` never fits; preemptions lead nowhere; a replica of a fleet has come to
`until_s`."""
COUNTED = (
    "made", "new_preempted", "new_prefilled", "new_cached", "weight_bytes", "read_bytes",
    "written_bytes", "chunk_read_bytes", "chunk_written_bytes",
)  # fmt: skip
"""Of `NOW`, what is counted over a stretch of a replica of a fleet."""
NONE = -1
"""No reason to return."""
BEGIN, ADMIT, COUNT, FIT, LOOK, GO, END = range(7)
"""Where in a step it goes on."""
BLOCKS, RUNS, BUCKETS, TOKENS = range(4)
"""Kinds of allocators: blocks as tokens come, runs of a known size, runs of buckets, slots as
tokens come wherever they lie."""
KV_MEMORY, SEQUENCE_CAP, TOKEN_BUDGET, OFFERED_LOAD = range(4)
"""As `STEP_LIMITS`."""
NEVER_S = 1e300
"""When what never comes would come."""
PHASES = ("attention", "prefill", "migration")
"""Phases that have a clock of their own."""

_INT = np.int64
NOW = np.dtype([
    *((name, _INT) for name in (
        "stage",
        # the line and the batch
        "first", "waiting", "next", "coming", "to_send", "running", "partial", "ended", "asked",
        # the step that is being made
        "decoding", "budget", "before", "ended_before", "seen_place", "kept_place",
        "chunks", "begun", "chunked", "pairs", "behind", "moves",
        "preempted", "cached", "limit", "context", "fitting",
        # counted over the run, and over what Python has not added yet
        "changes", "made", "close_made", "close_more", "lasts", "all_preempted", "left_then",
        "turn",
        "new_preempted", "new_prefilled", "new_cached", "new_migrations", "new_migrated",
        "weight_bytes", "read_bytes", "written_bytes", "chunk_read_bytes", "chunk_written_bytes",
        "migrated_bytes",
        "rows", "steps", "log", "to_learn",
        # blocks
        "free", "head", "tail", "rows_unused", "kept_unused", "looked_up_tokens", "hit_tokens",
        # runs
        "free_slots", "reserved", "short", "slabs", "leaving", "slid", "large", "epoch",
        "fit_changes", "fit_free", "fit_slots", "fit_epoch", "resized",
        # probes
        "seen", "step",
    )),
    *((name, np.float64) for name in (
        "now_s", "until_s", "ahead_s", "idle_s", "close_s", "steady_s", "busy_s", "migration_s",
        "weights_share", "attention_share", "prefill_share", "migration_share",
        "spent_attention", "spent_prefill", "spent_migration", "spent_all",
    )),
])  # fmt: skip
"""What changes. `first`: place of the head of the line in its ring; `before`: of those that run,
those from before admission; `pairs`, `behind`: of chunks, pairs of tokens and tokens stored before;
`close_*`: of `Metrics.close`; `turn`: preemptions judged; `seen`: `changes` at the last look for a
probe; `spent_*`: seconds since the warm-up that hang on a phase; `epoch`: counts bounds;
`until_s`, of a replica of a fleet: no step begins then or later, and no steps that end later are
counted; `ahead_s`: when these begin, or end."""
RULES = np.dtype([
    *((name, _INT) for name in (
        "kind", "fleet", "count", "warmup", "answers", "clients", "sessions",
        "budget", "cap", "slots", "most_futile", "prefills_first",
        "block", "spared", "spared_idle", "keeps", "texts", "once", "whole_output", "ahead",
        "space", "slabs", "best_fit", "buckets", "total", "align", "next_larger", "bucket_larger",
        "preempts_last", "apart", "apart_at", "parted", "repartitions", "at_once", "overflows",
        "joins", "joins_most",
        "runs_each", "sampled", "rounds",
        "attention_flops", "kv_bytes", "row_flops", "layer_flops", "head_flops", "weight_bytes",
        "chunk_flops", "vector_rows", "vector_columns", "tile", "kv_layers", "copies",
    )),
    *((name, np.float64) for name in (
        "borrow", "kernel_bytes", "bandwidth", "kv_bandwidth", "left", "slowdown", "beside_chunk",
        "decode_rate", "prefill_rate", "dense_rate", "vector_times", "attend_rate",
        "attend_prefill_rate", "overhead_s", "law_weights", "more_flops", "lasts_s",
        "spacing", "change", "another", "again", "last_s",
    )),
])  # fmt: skip
"""What stays: options, sizes and rates. `prefills_first`: a step either prefills whole prompts or
decodes, as under v0. `apart`: large reservations have a space of their own,
which begins at `apart_at`; `parted`: others lie in pools; `whole_output`: what a request will store
must be free as it is admitted; `ahead`: it is reserved then, as far as it is free; `copies`: they
take time; `joins`: of `plain_joining`, copying at most `joins_most` tokens at
a time, if that is not below 0; `fleet`: one of several replicas; `lasts_s`: until when requests
come to any of them."""
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
    arrival_s: FloatArray
    """In a closed loop known once a request is sent."""
    first_s: FloatArray
    end_s: FloatArray
    futile: IntArray
    """Preemptions of each since they were judged."""
    futile_turn: IntArray
    """When the first of these was."""


class PlainQueue(NamedTuple):
    """Who comes, waits and runs, and what the step does with them."""

    coming_s: FloatArray
    """Of all that will come, as far as that is known, in order."""
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
    think_s: FloatArray
    """This and what follows, of clients as `Clients` has them: by request, from the answer before
    to the request."""
    to_send: IntArray
    """In order, by who is answered next."""
    following: IntArray
    """By request, what its client sends next; -1: the next of `to_send`."""
    head: IntArray
    """By request, the first sample of its prompt; itself where it is alone."""
    sample: IntArray
    """By request, the next sample of its prompt; -1: none."""
    unanswered: IntArray
    """By the first sample, how many are not answered."""


class Blocks(NamedTuple):
    """Of `BlockTables`, `BlockPool` and its `Line`; `kept`: blocks of the last residence of
    preempted requests that share with nobody, and how often each had been handed out. From `users`
    on what `plain_texts` knows, where requests share: see there."""

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
    users: IntArray
    name: IntArray
    """By block: the name it is found by, -1 for none, and others of that name beside it."""
    older: IntArray
    newer: IntArray
    oldest: ShortArray
    """By name: blocks, -1 for none."""
    newest: ShortArray
    part_at: IntArray
    """By request and one more: where its parts begin, of texts that it has in common: of each part
    its end in blocks, and the name of its first block if the text began there."""
    part_end: IntArray
    part_base: IntArray
    own_base: IntArray
    """By request, as `part_base`, of what is behind its parts; -1: nothing of it is kept."""
    until: IntArray
    """By request: tokens of its prompt that others may find."""
    shares: BoolArray
    """By request: whether it has any of this; whether what it leaves is its session's; and whether
    its admission is to be counted."""
    goes_on: BoolArray
    counted: BoolArray
    hit: IntArray
    """Blocks found last, by place."""


class Holes(NamedTuple):
    """Of an `Arena`, by address; `number`, int64 (1,): how many there are."""

    start: IntArray
    size: IntArray
    number: IntArray


class PlainPools(NamedTuple):
    """Of `PartitionedPools`, by pool as `SizedPool` has them; `free`: of all pools, those of each
    from `free_at` on."""

    start: IntArray
    slots: IntArray
    block: IntArray
    next: IntArray
    used: IntArray
    free_at: IntArray
    free_count: IntArray
    free: IntArray
    rest_start: IntArray
    rest_size: IntArray
    rest_number: IntArray
    wanted: IntArray
    """Sizes that blocks are to have, of each refresh in turn."""


class PlainRuns(NamedTuple):
    """Of a `ContiguousAllocator` and its space: holes; slabs with a bit for each free block, in no
    order. What a request should have is known while `epoch` is that of `NOW`."""

    start: IntArray
    common: Holes
    kept: Holes
    """Of the space of large reservations."""
    pools: PlainPools
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
    fit_size: IntArray
    """By request in line, what it would reserve as `WaitingLine.fitting` found it; 0: not yet."""
    guess: IntArray
    """By request at its first admission: `epoch`, -1 before, then as `Guess` from `predicted`
    on."""


class Rows(NamedTuple):
    """Stretches that are not summed up yet, columns of `Stretches`; whether requests then wait; and
    seconds of all their steps."""

    stretches: FloatArray
    waits: BoolArray
    times_s: FloatArray
    ends_s: FloatArray
    """This and what follows, of replicas of a fleet: when each stretch ends."""
    counts: IntArray
    """Of each stretch, `COUNTED`, requests that ended, and whether the load was steady."""


class SharesBySize(NamedTuple):
    """Of `policies.memory.kv_share`; empty where the share does not hang on the size."""

    size: FloatArray
    share: FloatArray


def rows(most_rounds: int) -> Rows:
    """Empty."""
    return Rows(
        np.zeros((MOST_ROWS + 1, 22)), np.zeros(MOST_ROWS + 1, np.bool_),
        np.zeros(MOST_STEPS + most_rounds + 2), np.zeros(MOST_ROWS + 1),
        np.zeros((MOST_ROWS + 1, len(COUNTED) + 2), np.int64),
    )  # fmt: skip


def no_blocks() -> Blocks:
    """Of a run whose allocator has none."""
    one = np.zeros(1, np.int64)
    wide = np.zeros((1, 1), np.int64)
    arrays: dict[str, Any] = dict.fromkeys(Blocks._fields, one)
    arrays |= dict.fromkeys(("shares", "goes_on", "counted"), np.zeros(1, np.bool_))
    arrays |= dict.fromkeys(("oldest", "newest"), np.zeros(1, np.int32))
    return Blocks(**arrays | {"table": wide, "kept": wide, "kept_written": wide})


def no_runs() -> PlainRuns:
    """Of a run whose allocator has none."""
    one = np.zeros(1, np.int64)
    wide = np.zeros((1, 1), np.int64)
    arrays: dict[str, Any] = dict.fromkeys(PlainRuns._fields, one)
    arrays |= {"unsure": np.zeros(1, np.bool_), "leaving": wide, "guess": wide, "gaps": wide}
    spaces = {"common": holes(0, 1), "kept": holes(0, 1), "pools": no_pools()}
    return PlainRuns(**arrays | spaces)


_WIDE_OF_POOLS = ("rest_start", "rest_size", "rest_number", "wanted")


def no_pools() -> PlainPools:
    """Of a run without."""
    arrays: dict[str, Any] = dict.fromkeys(PlainPools._fields, np.zeros(1, np.int64))
    wide = np.zeros((1, 1), np.int64)
    return PlainPools(**arrays | dict.fromkeys(_WIDE_OF_POOLS, wide))


def holes(start: int, several: int, size: int = 0) -> Holes:
    """So many at most; at first one of `size` slots, if any."""
    made = Holes(*(np.zeros(each, np.int64) for each in (several, several, 1)))
    made.start[0], made.size[0], made.number[0] = start, size, size > 0
    return made


for each in (PlainRequests, PlainQueue, Blocks, PlainRuns, Rows):  # a NamedTuple has fields alone
    each.one_in_a_kernel = True  # type: ignore[union-attr]
