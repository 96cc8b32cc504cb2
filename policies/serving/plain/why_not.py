"""Which runs are plain: a closed list of what the compiled core knows.

Of each object of a run all attributes and options are named here: those that may have any value,
and those that must have one. What is not named makes a run general, so that a new feature is slow
in it and never wrong.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from policies.allocators.arena import Arena
from policies.allocators.block_pool import BlockPool
from policies.allocators.block_tables import BlockTables
from policies.allocators.kv_managers import FullAttention
from policies.allocators.pools import PartitionedPools, SharedPools
from policies.allocators.run_parts import Joining
from policies.allocators.sizes import OneSpace
from policies.allocators.slabs import Slabs
from policies.engines.admission import WaitingLine
from policies.engines.connected import Loads
from policies.engines.engine import Engine
from policies.engines.engine_v1 import EngineV1
from policies.engines.growth import Growth
from policies.memory.fidelity import Memory
from policies.memory.sampling import SampledMemory
from policies.memory.step import StepModel
from policies.requests.requests import Requests
from policies.serving.cluster import Manager
from policies.serving.metrics import Metrics
from policies.serving.node import Node
from policies.serving.plain.text_names import too_many
from policies.serving.replica import Replica

SWITCH = "BANKWISE_PLAIN"
"""A variable of the environment; 0: all runs are general; 1: those of few requests are plain,
too."""
MOST_REPLICAS = 64
"""Of a fleet: each has arrays of its own, by request and by block, also where it serves few (with
1,000 cards and shared prompts these took 109 CPU s where the general way takes 13)."""
MOST = 1 << 62
"""Whole numbers that the core can count."""
Must = Mapping[str, Any]
"""Attribute -> the value that it must have, or what says whether it is such a value."""


PAGED = "policies.allocators.paged.PagedAllocator"
STATIC = "policies.allocators.static.StaticAllocator"
ORACLE = "policies.allocators.oracle.OracleAllocator"
IDEAL = "policies.allocators.ideal.IdealAllocator"
ODMA = "policies.allocators.odma.Odma"
ODMA_BEST = "policies.allocators.odma_best.OdmaBestAllocator"
V0 = "policies.engines.engine_v0.EngineV0"
FIFO = "policies.allocators.free_lists.fifo.Queue"
OPEN = "policies.serving.open_arrivals.OpenArrivals"
CLIENTS = "policies.serving.clients.Clients"
"""Features by name: each of them may be taken away."""
ROUTERS_KNOWN = frozenset(
    f"policies.routers.{each}"
    for each in (
        "round_robin.RoundRobin", "least_requests.LeastRequests", "pressure.Pressure",
        "session.Session", "prefix.Prefix",
    )
)  # fmt: skip
"""Routers that look at nothing but who was placed, and has ended, where."""


def named(thing: Any) -> str:
    """The class of a thing, or a class, with its module."""
    kind = thing if isinstance(thing, type) else type(thing)
    return f"{kind.__module__}.{kind.__qualname__}"


def _empty(value: Any) -> bool:
    return value is None or value is False or len(value) == 0


def _whole(value: Any) -> bool:
    return isinstance(value, int | np.integer)


def _text(words: str) -> frozenset[str]:
    return frozenset(words.split())


_ENGINE_OPTIONS = _text(
    "name max_num_seqs max_tokens max_model_len packing_window too_long usage"
    " max_num_batched_tokens ends like swap_space"
)
_V1: Must = {
    "whole_inputs": True, "_priority": None, "in_turn": False, "_threshold": 0, "_between": False,
    "swapped": _empty, "_filling": _empty, "_again": _empty,
}  # fmt: skip
_V1_ANY = _text("engine spec _stops _under_way _recent _fills _any_decode _since _line")
_LINE: Must = {"_in_order": True}
_V0: Must = {
    "swapped": _empty, "_keepers": _empty, "_keeper": _empty, "_set_back": _empty,
    "_cut_short": _empty,
}  # fmt: skip
_V0_ANY = _text("engine spec _computed_tokens")
_SCHEDULERS: dict[str, tuple[frozenset[str], Must]] = {
    named(EngineV1): (_V1_ANY, _V1),
    V0: (_V0_ANY, _V0),
}
_LINE_ANY = _text("_engine early _bounds _fitting _overtaken _sizes _tag")
_LOADS: Must = {
    "connectors": _empty, "loading": _empty, "held": _empty, "back": _empty, "decodes": _empty,
    "line_asks": False, "delays": _empty, "rooms": _empty, "visitors": _empty, "turns": _empty,
}  # fmt: skip
_LOADS_ANY = _text("_engine _stuck_at _unsure forgets")
_ENGINE: Must = {
    "connectors": _empty, "loading": _empty, "held": _empty, "batching": None,
    "windowed": False, "_uneven": False, "late": False, "state_block": 0, "ending": _empty,
    "waiting": _empty, "running": _empty, "growth": lambda growth: type(growth) is Growth,
    "scheduler": lambda scheduler: not _unknown(scheduler, *_SCHEDULERS[named(scheduler)]),
    "line": lambda line: not _unknown(line, _LINE_ANY, _LINE, WaitingLine),
    "loads": lambda loads: not _unknown(loads, _LOADS_ANY, _LOADS, Loads),
}  # fmt: skip
_ENGINE_ANY = _text(
    "requests output predicted spec allocator prompt left changes reserved_ever run_tokens cap"
    " sessions partial cached_tokens relenting demands on_demand migrating caching copying"
    " remembering contiguous classifying budget preemptions progress _soonest _soonest_of"
)
_STEPS_ANY = _text(
    "_link work _cards _shares _slowdown _kv_layers _products _rates bandwidth _law _kv_bandwidth"
    " _kernel_bytes _host_bandwidth _left _launch_ns"
)
_WORK: Must = {
    "_groups": None, "_sparse": None, "_apart": None, "_alone": True, "_index_bytes": 0,
    "_repeats": 1, "_experts": None, "_routing": None, "_state_bytes": 0,
    "_made_flops": 0, "_chunk_made": 0, "_index_flops": 0, "_load_ops": 0, "_store_ops": 0,
    "kv_bytes": _whole, "_all_weight_bytes": _whole, "_layer_flops": _whole, "_head_flops": _whole,
    "_row_flops": _whole, "_attention_flops": _whole, "_chunk_flops": _whole,
    "_more_flops": lambda value: isinstance(value, float),
}  # fmt: skip
_WORK_ANY = _text(
    "_cards _copies _layers _hidden_bytes moved_bytes _all_weights _commits _state_row_bytes"
    " _pair_flops _mixed_layers _expert_flops"
)
_MEMORY: Must = {"_routed": None, "contention": None}
_MEMORY_ANY = _text("efficiency _transfers streams _steps")
_SAMPLED_ANY = _MEMORY_ANY | _text(
    "_spec _probe _layout _streams _phases _rng _clocks _changes _results _marks _beside _windows"
    " _common _intervals _spent_s _run_bytes"
)
_REPLICA_ANY = _text("engine memory metrics now_s _learns _steps shares ran_s served waited")
_REPLICA: Must = {
    "pipeline": None, "_together": True, "moves": None, "connectors": _empty, "_maps": None,
    "_watch": None, "_to_come": _empty,
}  # fmt: skip
_BLOCKS: Must = {
    "groups": 1, "pinned": _empty,
    "copying": lambda copying: not copying.made, "swaps": lambda swaps: not swaps.away,
    "holdings": lambda holdings: not holdings.behind,
    "pool": lambda pool: type(pool) is BlockPool and named(pool.order) == FIFO,
    "tables": lambda tables: type(tables) is BlockTables,
    "managers": lambda managers: [type(each) for each in managers] == [FullAttention],
    "windows": lambda windows: not windows.near,
    "state_blocks": lambda states: states.fixed == 0,
    "drafter_blocks": lambda drafter: not drafter.groups,
    "caching": lambda caching: not caching.index.states,
}  # fmt: skip
_BLOCKS_ANY = _text(
    "layout limits options stored reserved resident _total block spared spared_idle row demands has"
)


def _space(space: Any) -> bool:
    if type(space) is Slabs:
        space = space._common
    return type(space) is Arena and space.fit in ("first", "best")


def _one_space(sizes: Any) -> bool:
    return type(sizes) is OneSpace and _space(sizes.space)


def _buckets(sizes: Any) -> bool:
    if named(sizes) != f"{ODMA}Sizes" or _unknown(sizes, _SIZES_ANY, {}):
        return False
    pools = sizes._pools
    if type(pools) is PartitionedPools:
        return _space(pools._large)
    return type(pools) is SharedPools and _space(pools._all) and _space(pools._large)


def _joining(joining: Any) -> bool:
    return not _unknown(joining, _text("_of on"), {"moved": _empty}, Joining)


_RUNS: Must = {
    "slack": 0, "pinned": _empty, "joining": _joining,
    "prefixes": lambda prefixes: prefixes.remains is None,
}  # fmt: skip
_RUNS_ANY = _text(
    "layout limits options stored reserved resident _total start demands fresh filling states has"
)
_TOKENS_ANY = _text(
    "layout limits options stored reserved resident _total left whole waits has _ahead"
)
_RESERVING: Must = {**_RUNS, "sizes": _one_space}
_ODMA: Must = {**_RUNS, "sizes": _buckets}
_SIZES_ANY = _text(
    "_of _options buckets _blocks _pools _refreshes _tags _held _moves _leaving _guesses _wanted"
    " _score"
)
_RUN_OPTIONS = _text("name fit window_kv prefixes space reserve compaction compaction_tokens")
_BUCKET_OPTIONS = _RUN_OPTIONS | _text(
    "buckets levels balance gamma clip tau uncertainty constant window refresh refreshes"
    " first_bounds bounds align bucket_on large borrow pool_share pool_overflow"
    " bucket_full large_full pool_split repartition"
)
_BUCKET_MUST: Must = {"stagger": 0, "refresh_delay": 0}
_OPTIONS: dict[str, tuple[frozenset[str], Must]] = {
    PAGED: (
        _text(
            "name block watermark idle_watermark cached_recompute prefix_caching shared_samples"
            " window_rules indirection null_block free_list_window"
        ),
        {
            "free_list": "fifo", "states": None, "state_ratio": None,
            "state_caching": None,
        },
    ),
    IDEAL: (_text("name admit_on reserve"), {}),
    STATIC: (_RUN_OPTIONS, {"stagger": 0}),
    ORACLE: (_RUN_OPTIONS, {"stagger": 0}),
    f"{ODMA}Allocator": (_BUCKET_OPTIONS, _BUCKET_MUST),
    ODMA_BEST: (_BUCKET_OPTIONS, _BUCKET_MUST),
}  # fmt: skip
_ALLOCATORS: dict[str, tuple[frozenset[str], Must]] = {
    PAGED: (_BLOCKS_ANY, _BLOCKS),
    IDEAL: (
        _TOKENS_ANY,
        {"_states": 0, "_short": -1, "pinned": _empty},
    ),
    STATIC: (_RUNS_ANY, _RESERVING),
    ORACLE: (_RUNS_ANY, _RESERVING),
    f"{ODMA}Allocator": (_RUNS_ANY, _ODMA),
    ODMA_BEST: (_RUNS_ANY, _ODMA),
}
_MEMORIES: dict[str, tuple[frozenset[str], Must]] = {
    named(Memory): (_MEMORY_ANY, _MEMORY),
    named(SampledMemory): (_SAMPLED_ANY, {**_MEMORY, "_together": False}),
}


_SOURCES = {
    OPEN: _text("count _coming"),
    CLIENTS: _text(
        "count _coming _think_s _parent _samples _unanswered _following _to_send _sessions _last_s"
    ),
}


def _unknown(thing: Any, free: frozenset[str], must: Must, kind: type | None = None) -> str:
    """What of an object the core does not know, in words; empty: it knows all."""
    name = type(thing).__name__
    if kind is not None and type(thing) is not kind:
        return name
    for key, value in vars(thing).items():
        if key in free:
            continue
        if key not in must:
            return f"{name} {key.lstrip('_')}"
        wanted = must[key]
        fits = wanted(value) if callable(wanted) else value == wanted
        if not fits:
            return f"{name} {key.lstrip('_')}"
    return ""


def why_not(run: Any) -> str:
    """Why a `Simulation` is general; empty: the core knows all of it."""
    if os.environ.get(SWITCH) == "0":
        return f"{SWITCH}=0"
    if any(not vars(type(each)).get("by_rows") for each in run.watchers):
        return "watchers of every step"
    if run._recorder is not None or run._progress is not None:
        return "a log of the run"
    if run.now_s or named(run.source) not in _SOURCES:
        return type(run.source).__name__
    if why := _unknown(run.source, _SOURCES[named(run.source)], {}):
        return why
    if run._enter != run._to_the_node or len(run.nodes) != 1:
        return "pools"
    node = run.nodes[0]
    if type(node) is not Node or type(node.manager) is not Manager:
        return "several cards"
    if len(node.units) != len(node.own) or type(run.metrics) is not Metrics:
        return "several cards"
    if len(node.own) > 1 and (why := _of_fleet(run, node)):
        return why
    engine = node.own[0].engine
    replicas = (_of_replica(each) for each in node.own)
    return next(filter(None, replicas), "") or _of_requests(engine.requests, engine.allocator)


def _of_fleet(run: Any, node: Any) -> str:
    """Why several replicas behind a router are general, if not for what one of them has."""
    if len(node.own) > MOST_REPLICAS:
        return f"more than {MOST_REPLICAS} cards"
    if named(node.manager._router) not in ROUTERS_KNOWN:
        return f"router {node.manager.spec.placement}"
    if run.watchers or node.lives != [1] * len(node.own):
        return "several cards that are watched"
    if named(run.source) != OPEN or named(node.own[0].memory) != named(Memory):
        return "several cards with clients or probes"
    learns = f"{ODMA}Sizes"
    if any(named(getattr(each.engine.allocator, "sizes", None)) == learns for each in node.own):
        return "several cards that learn"
    joins = (getattr(each.engine.allocator.options, "compaction", "none") for each in node.own)
    return "several cards that join holes" if set(joins) != {"none"} else ""


def _of_replica(replica: Any) -> str:
    why = _unknown(replica, _REPLICA_ANY, _REPLICA, Replica)
    if why:
        return why
    engine, memory, steps = replica.engine, replica.memory, replica._steps
    allocator = engine.allocator
    scheduler = named(engine.scheduler)
    if scheduler not in _SCHEDULERS or (scheduler == V0 and not _reserves(allocator)):
        return type(engine.scheduler).__name__
    for thing, known in ((allocator, _ALLOCATORS), (memory, _MEMORIES)):
        if named(thing) not in known:
            return type(thing).__name__
        if why := _unknown(thing, *known[named(thing)]):
            return why
    options = _options_differ(engine, allocator)
    steps_must = {"tabled": None, "_together": False}
    return (
        options
        or _unknown(engine, _ENGINE_ANY, _ENGINE, Engine)
        or _unknown(steps, _STEPS_ANY, steps_must, StepModel)
        or _unknown(steps.work, _WORK_ANY, _WORK)
        or _too_large(engine, steps.work)
    )


def _reserves(allocator: Any) -> bool:
    """Whether it gives each request one run that stays where it is."""
    known = named(allocator) in (STATIC, ORACLE, f"{ODMA}Allocator")
    return known and allocator.options.compaction == "none"


def _options_differ(engine: Any, allocator: Any) -> str:
    plain = {
        "batching": "any", "packing": "arrival", "admit_on": "input", "async_scheduling": False,
        "long_prefill_token_threshold": 0, "prefill_schedule_interval": 1,
        "chunked_prefill": False, "preemption": "recompute", "contention": None, "swap_dram": None,
        "swap_link": None,
    }  # fmt: skip
    if why := _unknown(engine.spec, _ENGINE_OPTIONS, plain):
        return why
    if allocator.layout.groups is not None or allocator.layout.sparse is not None:
        return "layers that differ"
    return _unknown(allocator.options, *_OPTIONS[named(allocator)])


def _of_requests(requests: Requests, allocator: Any) -> str:
    if named(allocator) == PAGED and too_many(requests, allocator.block):
        return "too many blocks that are shared"
    return "beams" if requests.forks.any() else ""


def _too_large(engine: Any, work: Any) -> str:
    """Where whole numbers of a step may be more than the core can count."""
    slots, longest = engine.allocator.slots, engine.allocator.limits.max_model_len + 1
    most = max(
        slots * max(work._attention_flops, work.kv_bytes), engine.budget * work._row_flops,
        engine.budget * longest * work._chunk_flops,
    )  # fmt: skip
    return "numbers beyond 2^62" if most >= MOST else ""
