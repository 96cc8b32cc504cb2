"""Does no run beat the bound of its own counts, and are the closed forms the collected ones?"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

import yaml
from hwmodel.description.description import DescriptionError
from hwmodel.description.library import names
from hwmodel.measure.bandwidth import PATTERNS as NAMED
from hwmodel.measure.bandwidth import MeasuredSpan, extent_pattern, figures_of
from hwmodel.measure.bounds import BURSTS_PER_ROW, least_cycles, read_bound, refresh_share
from hwmodel.measure.open_loop import OpenLoop
from hwmodel.specs.commands import COMMANDS
from hwmodel.specs.device import load_device
from hwmodel.specs.memory_spec import MemorySpec
from tests.hwmodel.memories import Case, cases
from tests.rotation import LONG, rotated, spread

REFERENCE = Path(__file__).parents[2] / "reference"
BOUNDS = yaml.safe_load((REFERENCE / "read_bounds.yaml").read_text())
MEMORIES = {
    "LPDDR5-6400 BG BL16": "lpddr5-6400-x16",
    "LPDDR5-6400 BG BL32": "lpddr5-6400-x16-bl32",
    "LPDDR5-6400 8B BL32": "lpddr5-6400-x16-8b",
    "LPDDR5-3200 16B BL16": "lpddr5-3200-x16-16b",
    "LPDDR5X-8533 BG BL16": "lpddr5x-8533-x16",
    "LPDDR4-4266 BL16": "dramsys-lpddr4-4266-x16",  # with the tRRD and tFAW of that setting
    "HBM2-2.0 PC BL4": "hbm2-2.0",
    "HBM2E-3.2 PC BL4": "hbm2e-3.2",
    "HBM3-6.4 PC BL8": "hbm3-6.4",
}
SETTINGS = {
    "HBM2E-3.2 PC BL4": ["timing.tRRD_S=4ns", "timing.tRRD_L=6ns", "timing.tFAW=16ns"],
}
"""What the collected forms were made of where the description has other values."""
OURS = {"banks": "banks", "faw": "tFAW", "rrd": "tRRD", "dq": "data bus", "ca": "ca"}
DIFFERENT = {
    # 32 banks in two stack ids here, 16 of one there
    ("HBM2E-3.2 PC BL4 32B x1", "banks"): 2.0,
    ("HBM2E-3.2 PC BL4 32B x2", "banks"): 2.0,
    ("HBM3-6.4 PC BL8 32B x1", "banks"): 2.0,
    ("HBM3-6.4 PC BL8 32B x2", "banks"): 2.0,
    # the row bus alone there; here also the column bus, which two pseudo-channels share and fill
    ("HBM3-6.4 PC BL8 32B x2", "ca"): 0.75,
}
"""What ours is of theirs, where it differs; none of these binds."""
PATTERNS = ["sequential", "random", "pages", "one bank", "one row", "mixed", "parts of a burst"]


@pytest.mark.parametrize("case", BOUNDS)
def test_closed_forms_are_the_collected_ones(case: str) -> None:
    kind, _, times = case.rsplit(" ", 2)
    fact = BOUNDS[case]
    settings = ["controller.refresh=none", *SETTINGS.get(kind, [])]
    memory = load_device(MEMORIES[kind], settings).memory
    pattern = {"x1": "random_1_burst", "x2": "random_2_bursts"}[times]
    found, each = read_bound(memory, pattern), memory.organisation.pseudochannels
    assert found.gbps / each == pytest.approx(fact["bound_gbps"], rel=1e-3)
    assert found.fraction == pytest.approx(fact["fraction"], rel=1e-3)
    limits = {name: gbps / each for name, gbps in found.limits_gbps.items()}
    limits["ca"] = min(gbps for name, gbps in limits.items() if name.endswith("command bus"))
    for theirs, gbps in fact["limits_gbps"].items():
        expected = gbps * DIFFERENT.get((case, theirs), 1.0)
        assert limits[OURS[theirs]] == pytest.approx(expected, rel=1e-3), theirs


def stream(memory: MemorySpec, pattern: str, count: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    o, chance = memory.organisation, np.random.default_rng(11)
    bursts = o.capacity_bytes // o.burst_bytes
    burst = {
        "sequential": np.arange(count),
        "random": chance.integers(0, bursts, count),
        "pages": (
            chance.integers(0, bursts // 32, count // 32)[:, None] * 32 + np.arange(32)
        ).ravel(),
        "one bank": chance.integers(0, o.rows, count) * (bursts // o.rows),
        "one row": chance.integers(0, 2, count) * 2,
        "mixed": chance.integers(0, bursts, count),
        "parts of a burst": np.zeros(count, np.int64),
    }[pattern]
    kind = (chance.random(count) < (0.5 if pattern == "mixed" else 0.0)).astype(np.int64)
    return burst * o.burst_bytes, kind + 2 * (pattern == "parts of a burst")


def bound(run: OpenLoop) -> float:
    state = run.states[0]
    commands = dict(zip(COMMANDS, state["commands"].tolist(), strict=True))
    banks = run.memory.organisation.bank_numbers
    even = least_cycles(run.memory, commands)[0]
    found = least_cycles(run.memory, commands, state["bank_commands"][:banks])[0]
    assert found >= even * (1 - 1e-12), "what the busiest bank asks for is no less than the mean"
    return found


@pytest.mark.parametrize(("name", "pattern"), spread(names("memories"), PATTERNS))
def test_no_run_of_a_shipped_memory_beats_its_own_bound(name: str, pattern: str) -> None:
    memory = load_device(name).memory
    run = OpenLoop(memory)
    run.feed(0, *stream(memory, pattern))
    run.finish()
    cycles = run.end_tick / memory.clock.ticks_per_ck
    assert cycles >= bound(run)
    if pattern == "one bank":
        # LPDDR6 writes 10 ns sooner after an activation than it reads, and the bound knows no kinds
        share = 0.7 if name.startswith("lpddr6") else 0.75
        assert bound(run) > share * cycles, "the cycles of the one bank are most of what binds"
    if pattern == "parts of a burst" and memory.masked_writes:
        assert bound(run) > 0.75 * cycles, "the distance of masked writes is most of what binds"


@settings(max_examples=200 if LONG else 60)
@given(case=cases())
def test_no_run_of_a_generated_memory_beats_its_own_bound(case: Case) -> None:
    tick, address, write = (
        np.array(column, np.int64) for column in zip(*case.requests, strict=True)
    )
    run = OpenLoop(case.memory)
    run.feed(0, address, write, tick)
    run.finish()
    assert run.end_tick / case.memory.clock.ticks_per_ck >= bound(run)


MODES = {
    "no refresh": ["controller.refresh=none"],
    "per bank": ["controller.refresh=per_bank"],
    "all banks": ["controller.refresh=all_bank"],
    "all banks, hot": ["controller.refresh=all_bank", "temperature=95"],
    "all banks, postponed": ["controller.refresh=all_bank", "controller.refresh_postpone=8"],
}
RANKED = {
    "as described": [],
    "2 ranks, outermost": ["{fields},rank:1"],
    "4 ranks in turn": ["rank:2,{fields}"],
}
EACH = [
    (name, ranks)
    for name in names("memories")
    for ranks in RANKED
    if ranks == "as described"
    or any(row.scope == "rank" for row in load_device(name).memory.constraints)
] + [(name, "as described") for name in names("accelerators") if load_device(name).given is None]


def ranked(name: str, ranks: str, mode: str) -> list[str]:
    """The settings of a memory with so many ranks. Raises DescriptionError."""
    found = list(MODES[mode])
    for fields in RANKED[ranks]:
        own = [f"{field}:{bits}" for field, bits in load_device(name).memory.resolved_address_map()]
        found += [f"organisation.ranks={ranks[0]}"]
        found += [f"address_map=[{fields.format(fields=','.join(own))}]"]
    return found


@pytest.mark.parametrize(("each", "mode"), rotated(EACH, list(MODES)))
def test_no_measured_pattern_beats_its_closed_form(each: tuple[str, str], mode: str) -> None:
    """Of one channel of every shipped device, whatever its ranks are and how it is refreshed."""
    try:
        device = load_device(each[0], ranked(*each, mode))
    except DescriptionError:
        pytest.skip("it has no such refreshes, or no room for such ranks")
    device = replace(device, accelerator=None)
    memory, span = device.memory, MeasuredSpan(1 << 20, 0.0, 0.0)
    for form, bursts in BURSTS_PER_ROW.items():
        pattern = NAMED["sequential"]
        if bursts is not None:
            pattern = extent_pattern(bursts * memory.organisation.burst_bytes, 0.0)[1]
        found, limit = figures_of(device, form, pattern, span), read_bound(memory, form)
        # the refreshes of the first interval, and those that the end leaves, are not in it
        lacks = Fraction(0)
        if memory.controller.refresh == "all_bank":
            lost = refresh_share(memory, True) * memory.refresh_ticks()
            ticks = found["cycles"] * memory.clock.ticks_per_ck
            lacks = (1 + memory.controller.refresh_postpone) * lost / ticks
        assert found["bandwidth_gbps"] <= limit.gbps * (1.0005 + float(lacks)), form
