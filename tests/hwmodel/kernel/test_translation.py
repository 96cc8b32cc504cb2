"""Do frames, TLBs and walks cost what closed forms say, and nothing where they are off?"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from hwmodel.kernel.extents import EngineStream, Frames, as_mapped, cut
from hwmodel.kernel.memory import Descriptors, SystemResult, idle_read_ns, simulate_system
from hwmodel.kernel.translation import ENTRY_BYTES, lookups, shuffled, translated
from hwmodel.measure.pattern import device_latency
from hwmodel.specs.device import load_device
from hwmodel.specs.virtual_memory import Tlb, Translation

KIB, MIB = 1024, 1 << 20
CAPACITY = 1 << 30


def stream(engine: np.ndarray, start: np.ndarray, size: int) -> EngineStream:
    one = np.ones(len(start), np.int64)
    return EngineStream(engine, start, size * one, 0 * one, one)


def one_engine(start: np.ndarray, size: int) -> EngineStream:
    return stream(np.zeros(len(start), np.int64), start, size)


def described(**keys: Any) -> Translation:
    return Translation.model_validate(keys)


def moved(spec: Translation, given: EngineStream, trip: int = 10) -> EngineStream:
    return translated(spec, CAPACITY, 4, given, None, trip, 1.0)


def test_extents_are_cut_at_frames_and_only_their_first_piece_waits() -> None:
    pieces = cut(one_engine(np.array([3000, 9000]), 6000), 4096, 100)
    assert pieces.start.tolist() == [3000, 4196, 8292, 9000, 12388]
    assert (pieces.start + pieces.size).tolist() == [4196, 8292, 9000, 12388, 15000]
    assert pieces.wait.tolist() == [1, 0, 0, 1, 0]


def test_a_sequential_stream_beyond_reach_misses_once_a_frame() -> None:
    """The last in is the first needed: a cyclic stream of more frames than entries never hits."""
    spec = described(frame="64KiB", tlb=[{"entries": 15}])
    around = np.concatenate([np.arange(0, MIB, 4 * KIB)] * 3)
    walks = moved(spec, one_engine(around, 4 * KIB))
    assert (walks.size == ENTRY_BYTES).sum() == 3 * 16
    enough = moved(described(frame="64KiB", tlb=[{"entries": 16}]), one_engine(around, 4 * KIB))
    assert (enough.size == ENTRY_BYTES).sum() == 16


def test_random_frames_beyond_reach_miss_as_far_as_entries_do_not_reach() -> None:
    """Entries over frames is the chance of a hit, less those of the engine's own last one."""
    rng = np.random.default_rng(1)
    frames, entries = 400, 100
    page = rng.integers(0, frames, 40_000)
    found = lookups([Tlb(entries=entries)], 1, one_engine(page * 4096, 64), page, 1 << 30)
    assert (found == 1).mean() == pytest.approx(1 - entries / frames, abs=0.01)


def test_a_tlb_that_reaches_over_the_footprint_never_misses() -> None:
    """Reach is entries times frame."""
    start = np.random.default_rng(1).integers(0, 4096, 500) * 64 * KIB
    for entries, walks in ((255, True), (256, False)):
        tlb = [{"entries": entries, "shared": True}]
        spec = described(frame="64KiB", tlb=tlb, footprint="16MiB")
        assert bool((moved(spec, one_engine(start, 64)).size == ENTRY_BYTES).any()) is walks


def test_a_shared_tlb_serves_engines_that_follow_another_one() -> None:
    engine = np.repeat(np.arange(4), 8)
    start = np.tile(np.arange(8), 4) * 4096
    own = lookups([Tlb(entries=8)], 4, stream(engine, start, 4096), start // 4096, 1 << 30)
    both = [Tlb(entries=8), Tlb(entries=8, shared=True)]
    shared = lookups(both, 4, stream(engine, start, 4096), start // 4096, 1 << 30)
    assert (own == 1).all()
    assert (shared == 2).sum() == 8 and (shared == 1).sum() == 24
    assert (shared.reshape(4, 8)[0] == 2).all(), "at equal progress the first engine goes first"


def test_a_walk_reads_an_entry_of_each_level_and_the_data_wait_for_it() -> None:
    spec = described(frame="4KiB", levels=3, tlb=[{"entries": 2, "latency": "7ns"}])
    found = moved(spec, one_engine(np.array([0, 4 * KIB, 0]), 64))
    assert found.size.tolist() == [8, 8, 8, 64] * 2 + [64]
    assert found.wait.tolist() == [8, 10, 10, 10] * 2 + [8]
    top = CAPACITY - 4096
    assert found.start[[2, 6]].tolist() == [top, top + 8], "entries of frames side by side"
    assert (found.start[[0, 1, 4, 5]] < top).all() and found.start[3] == 0
    hidden = moved(spec.model_copy(update={"walks": "overlap"}), one_engine(np.array([0]), 64))
    assert hidden.wait.tolist() == [1, 0, 0, 0]


def test_a_shuffle_is_a_permutation_of_whole_frames() -> None:
    assert sorted(shuffled(1000, 3)) == list(range(1000))
    spec = described(frame="1MiB", map="shuffled", footprint="1MiB", tlb=[{"entries": 1}])
    found = moved(spec, one_engine(np.arange(1024) * MIB + 5, 100))
    assert (found.start % MIB == 5).all() and sorted(found.start // MIB) == list(range(1024))


def test_a_descriptor_holds_what_an_allocator_maps_side_by_side() -> None:
    """Frames 2 and 0 follow each other at virtual addresses; frame 1 is another request's."""
    frames = Frames(base=4096, size=4096, virtual=np.array([8, 90, 7]))
    place = np.array([3 * 4096, 4096, 2 * 4096])
    assert as_mapped(one_engine(place, 4096), frames, 0).wait.tolist() == [1, 0, 1]
    outside = as_mapped(one_engine(np.array([8, 9]) * 4096, 4096), frames, 0)
    assert outside.wait.tolist() == [1, 1]


@cache
def read(settings: str, name: str = "mlu370-x4", window: int = 0) -> SystemResult:
    """16 KiB one after another, or 256 bytes anywhere in a window."""
    device = load_device(name, [settings] if settings else [])
    engines = device.dma.engines
    each, size = (60, 256) if window else (8, 16 * KIB)
    engine = np.repeat(np.arange(engines), each)
    start = np.arange(len(engine)) * size
    if window:
        start = np.random.default_rng(1).integers(0, window // size, len(engine)) * size
    many = np.full(len(start), size, np.int64)
    return simulate_system(device, Descriptors(engine, start, many, np.zeros(len(start), bool)))


def test_frames_that_never_miss_change_nothing() -> None:
    assert read("translation={footprint: 2MiB, tlb: [{entries: 1}]}") == read("")


def test_walks_move_bursts_that_no_engine_asked_for() -> None:
    plain, walked = read(""), read("translation={frame: 4KiB}")
    burst = 32
    assert walked.total_bytes == plain.total_bytes and walked.finished
    assert walked.bursts - plain.bursts == 32 * 8 * 4 * (64 // burst)
    assert walked.gbps < plain.gbps


def test_random_reads_collapse_beyond_reach_and_not_within() -> None:
    """Direction of Walker (arXiv 2405.11425): an A100's random reads fall beyond 64 GB."""
    tlb = "translation={tlb: [{entries: 512, shared: true}], footprint: %s}"
    within, beyond = ("a100-80gb", 1 << 30), ("a100-80gb", 8 << 30)
    assert read(tlb % "1GiB", *within) == read("", *within)
    plain = read("", *beyond).gbps
    assert read(tlb % "8GiB", *beyond).gbps < 0.5 * plain
    assert 0.5 * plain < read(tlb % "8GiB, walks: overlap", *beyond).gbps < plain


@pytest.mark.parametrize("name", ["mlu370-x4", "a100-80gb"])
def test_a_walk_waits_as_long_as_a_read_of_an_idle_memory(name: str) -> None:
    device = load_device(name)
    assert idle_read_ns(device) == pytest.approx(device_latency(device, 1 << 30), rel=0.06)
