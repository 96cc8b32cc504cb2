"""Ramulator 2.1's own tests of timings (CMU-SAFARI/ramulator2 c5b1c3a), as cells of ours.

`tests/device_timings` of DDR4, HBM3, HBM4, GDDR6 and GDDR7, and the gaps of
`tests/controller_scheduling` of LPDDR6 and HBM3/4: after some commands, when is the next one legal
first? A cell has the clock that they assert, from their presets; the auditor says when it is here.
docs/dram.md has the sums.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from hwmodel.measure.bandwidth import measure
from hwmodel.measure.pattern import channel_latency
from hwmodel.oracle.audit import audit
from hwmodel.specs.device import load_device
from hwmodel.specs.memory_spec import MemorySpec, row_delay
from tests.hwmodel.memories import command_log, spec
from tests.hwmodel.oracle.reference import Issued

Place = tuple[int, int, int, int]
"""Pseudo-channel, stack, bank group, bank."""
A: Place = (0, 0, 0, 0)
SAME_GROUP: Place = (0, 0, 0, 1)
GROUP: Place = (0, 0, 1, 0)
STACK: Place = (0, 1, 0, 0)
STACK_GROUP: Place = (0, 1, 1, 0)
PC: Place = (1, 0, 0, 0)
GDDR6 = {
    "tRCDRD": 30, "tRCDWR": 20, "tRP": 30, "tRAS": 60, "tRC": 90, "tWR": 30, "tRRD": 11, "tFAW": 43,
    "tRREFD": 22, "tRFCpb": 106, "tRFCab": 211, "tPPD": 2,
}  # fmt: skip
"""Their preset of 1.25 V, in clocks; the shipped memory has that of 1.35 V."""


class Cell(NamedTuple):
    """`asserts`: the clock at which their test has `last` legal first, after `before`."""

    test: str
    memory: str
    before: list[tuple[float, str, Place]]
    last: tuple[str, Place]
    asserts: float
    here: float | None = None
    """Where the auditor says otherwise, its clock."""
    why: str = ""
    timing: dict[str, int] = {}


def acts(gap: float, place: Place, at: float, column: str) -> list[tuple[float, str, Place]]:
    """Two rows opened, and a column command of the first."""
    return [(0, "ACT", A), (gap, "ACT", place), (at, column, A)]


DDR4, HBM3, HBM4, SIX, SEVEN, L6 = (
    "ddr4-2400-x64", "ramulator-hbm3-6.4", "hbm4-8.0", "gddr6-14", "gddr7-28", "lpddr6-10667-x12",
)  # fmt: skip


def closes(place: Place) -> list[tuple[float, str, Place]]:
    """Two rows opened, and the first closed."""
    return [(0, "ACT", A), (8, "ACT", place), (200, "PRE", A)]


NS = "tRREFD is 8 ns here, and 8 clocks in their preset"
EDGE = "a refresh takes half a clock of the row bus here, and a whole one there"
TWO = "a delay after a command of two clocks counts from its second there, from its first here"
CELLS = [
    Cell("ddr4 read", DDR4, [(0, "ACT", A)], ("RD", A), 16),
    Cell("ddr4 read, precharge", DDR4, [(0, "ACT", A), (16, "RD", A)], ("PRE", A), 39),
    Cell(
        "ddr4 precharge, activate", DDR4, [(0, "ACT", A), (16, "RD", A), (39, "PRE", A)],
        ("ACT", A), 55,
    ),
    Cell(
        "ddr4 fifth activate", DDR4, [(4 * n, "ACT", (0, 0, n, 0)) for n in range(4)],
        ("ACT", SAME_GROUP), 26,
    ),
    Cell("ddr4 activates, same group", DDR4, [(0, "ACT", A)], ("ACT", SAME_GROUP), 6),
    Cell("ddr4 activates, other group", DDR4, [(0, "ACT", A)], ("ACT", GROUP), 4),
    Cell("hbm3 same sid, other group", HBM3, acts(4, GROUP, 35, "RD"), ("RD", GROUP), 37),
    Cell("hbm3 other sid", HBM3, acts(4, STACK, 35, "RD"), ("RD", STACK), 38),
    Cell("hbm3 same group", HBM3, acts(5, SAME_GROUP, 36, "RD"), ("RD", SAME_GROUP), 40),
    Cell("hbm3 other sid, writes", HBM3, acts(4, STACK_GROUP, 19, "WR"), ("WR", STACK_GROUP), 21),
    Cell("hbm4 same sid, other group", HBM4, acts(5, GROUP, 44, "RD"), ("RD", GROUP), 46),
    Cell(
        "hbm4 other sid", HBM4, acts(5, STACK, 44, "RD"), ("RD", STACK), 46, 47,
        "tCCD_R is 3 here, of study packs that paraphrase JESD270-4; 2 in their preset",
    ),
    Cell("hbm4 same group", HBM4, acts(7, SAME_GROUP, 46, "RD"), ("RD", SAME_GROUP), 50),
    Cell("hbm4 other sid, writes", HBM4, acts(5, STACK_GROUP, 24, "WR"), ("WR", STACK_GROUP), 26),
    Cell("gddr6 read", SIX, [(0, "ACT", A)], ("RD", A), 30, timing=GDDR6),
    Cell(
        "gddr6 read, precharge", SIX, [(0, "ACT", A), (30, "RD", A)], ("PRE", A), 60, timing=GDDR6,
    ),
    Cell("gddr6 write", SIX, [(0, "ACT", A)], ("WR", A), 20, timing=GDDR6),
    Cell(
        "gddr6 write, precharge", SIX, [(0, "ACT", A), (20, "WR", A)], ("PRE", A), 60, timing=GDDR6,
    ),
    Cell(
        "gddr6 same group", SIX, acts(11, SAME_GROUP, 41, "RD"), ("RD", SAME_GROUP), 45,
        timing=GDDR6,
    ),
    Cell("gddr6 other group", SIX, acts(11, GROUP, 41, "RD"), ("RD", GROUP), 43, timing=GDDR6),
    Cell("gddr6 read to write", SIX, acts(11, GROUP, 30, "RD"), ("WR", GROUP), 55, timing=GDDR6),
    Cell("gddr6 write to read", SIX, acts(11, GROUP, 20, "WR"), ("RD", GROUP), 41, timing=GDDR6),
    Cell(
        "gddr6 fifth activate", SIX,
        [(11 * n, "ACT", (0, 0, n, 0)) for n in range(4)], ("ACT", SAME_GROUP), 60,
        timing={**GDDR6, "tFAW": 60},
    ),
    Cell("gddr6 refresh, same bank", SIX, [(0, "REFPB", A)], ("ACT", A), 106, timing=GDDR6),
    Cell("gddr6 refresh, other bank", SIX, [(0, "REFPB", A)], ("ACT", GROUP), 22, timing=GDDR6),
    Cell("gddr6 refresh of all", SIX, [(0, "REFAB", A)], ("ACT", GROUP), 211, timing=GDDR6),
    Cell("gddr7 read", SEVEN, [(0, "ACT", A)], ("RD", A), 30),
    Cell("gddr7 read, precharge", SEVEN, [(0, "ACT", A), (30, "RD", A)], ("PRE", A), 61, 60, TWO),
    Cell(
        "gddr7 precharge, activate", SEVEN, [(0, "ACT", A), (30, "RD", A), (61, "PRE", A)],
        ("ACT", A), 90, 91, TWO,
    ),
    Cell("gddr7 write, precharge", SEVEN, [(0, "ACT", A), (19, "WR", A)], ("PRE", A), 61, 60, TWO),
    Cell("gddr7 activates", SEVEN, [(0, "ACT", A)], ("ACT", SAME_GROUP), 4),
    Cell("gddr7 reads", SEVEN, acts(4, SAME_GROUP, 34, "RD"), ("RD", SAME_GROUP), 36),
    Cell(
        "gddr7 read to write", SEVEN, [*acts(4, SAME_GROUP, 34, "RD"), (36, "RD", SAME_GROUP)],
        ("WR", A), 48, 60, "RL + nBL + 4 - WL = 24 here, their rule; their preset writes 12",
    ),
    Cell("gddr7 write to read, same bank", SEVEN, [(0, "ACT", A), (19, "WR", A)], ("RD", A), 38),
    Cell(
        "gddr7 reads, same bank", SEVEN, [(0, "ACT", A), (19, "WR", A), (38, "RD", A)],
        ("RD", A), 42,
    ),
    Cell(
        "gddr7 auto-precharge", SEVEN, [(0, "ACT", A), (30, "RDA", A)], ("ACT", A), 64, None,
        timing={"tRC": 40, "tRAS": 10},
    ),
    Cell("gddr7 refresh, same bank", SEVEN, [(0, "REFPB", A)], ("ACT", A), 104, 105, TWO),
    Cell("gddr7 refresh, other bank", SEVEN, [(0, "REFPB", A)], ("ACT", SAME_GROUP), 20, 21, TWO),
    Cell("gddr7 refresh of all", SEVEN, [(0, "REFAB", A)], ("ACT", A), 314, 315, TWO),
    Cell("lpddr6 reads, other group", L6, acts(10, GROUP, 100, "RD"), ("RD", GROUP), 106),
    Cell("lpddr6 reads, same group", L6, acts(10, SAME_GROUP, 100, "RD"), ("RD", SAME_GROUP), 110),
    Cell("lpddr6 write, precharge", L6, [(0, "ACT", A), (100, "WR", A)], ("PRE", A), 170),
    Cell("lpddr6 read to write", L6, [(0, "ACT", A), (100, "RD", A)], ("WR", A), 147),
    Cell("lpddr6 write to read", L6, [(0, "ACT", A), (100, "WR", A)], ("RD", A), 170),
    Cell("hbm3 precharges", "hbm3-6.4", closes(GROUP), ("PRE", GROUP), 202),
    Cell("hbm3 precharges, other pc", "hbm3-6.4", closes(PC), ("PRE", PC), 200.5),
    Cell("hbm4 precharges", HBM4, closes(GROUP), ("PRE", GROUP), 202),
    Cell("hbm4 precharges, other pc", HBM4, closes(PC), ("PRE", PC), 200.5),
    Cell("hbm3 refreshes", "hbm3-6.4", [(0, "REFPB", A)], ("REFPB", SAME_GROUP), 8, 13, NS),
    Cell("hbm3 refreshes, other pc", "hbm3-6.4", [(0, "REFPB", A)], ("REFPB", PC), 1, 0.5, EDGE),
    Cell("hbm4 refreshes", HBM4, [(0, "REFPB", A)], ("REFPB", SAME_GROUP), 8, 16, NS),
    Cell("hbm4 refreshes, other pc", HBM4, [(0, "REFPB", A)], ("REFPB", PC), 1, 0.5, EDGE),
]  # fmt: skip
ROW, LONGEST = 7, 700
"""The row of every command; clocks that are looked through."""


def memory_of(cell: Cell) -> MemorySpec:
    """With the refresh commands that the cell has."""
    used = {name for _, name, _ in cell.before} | {cell.last[0]}
    refresh = "all_bank" if "REFAB" in used else "per_bank" if "REFPB" in used else None
    more: dict[str, Any] = {f"timing__{name}": f"{n}nCK" for name, n in cell.timing.items()}
    if refresh:
        more["controller__refresh"] = refresh
    if cell.memory == L6:
        more["sync__always_on"] = True
    if "RDA" in used:
        more["controller__page_policy"] = "closed"
    return spec(cell.memory, **more)


def issued(memory: MemorySpec, clock: float, name: str, place: Place) -> list[Issued]:
    """A command there; ACT as the memory's, the second half two clocks on."""
    pc, stack, group, bank = place
    tick = round(clock * memory.clock.ticks_per_ck)
    column = 0 if name in ("RD", "RDA", "WR", "WRA") else -1
    if name == "REFAB":
        return [Issued(tick, name, pc, 0, -1, -1, -1, -1, -1)]
    closes = name in ("PRE", "REFPB")
    at = (pc, 0, stack, group, bank, -1 if closes else ROW, column)
    if name == "ACT" and memory.activate.steps == 2:
        apart = 2 * memory.clock.ticks_per_ck
        return [Issued(tick, "ACT1", *at), Issued(tick + apart, "ACT2", *at)]
    return [Issued(tick, name, *at)]


def first_legal(cell: Cell) -> float:
    """The clock from which the last command is legal here."""
    memory = memory_of(cell)
    before = [each for at in cell.before for each in issued(memory, *at)]
    assert legal(memory, before), "what comes before"
    step = memory.clock.ticks_per_ck
    for tick in range(int(cell.before[-1][0] * step), LONGEST * step):
        last = issued(memory, tick / step, *cell.last)
        if tick > before[-1].tick and legal(memory, [*before, *last[:1]]):
            return tick / step
    raise AssertionError("never legal")


def legal(memory: MemorySpec, commands: list[Issued]) -> bool:
    return not audit(memory, command_log(commands), refresh=False)


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.test)
def test_is_the_command_legal_first_where_their_test_has_it(cell: Cell) -> None:
    assert first_legal(cell) == (cell.asserts if cell.here is None else cell.here)
    assert (cell.here is None) == (not cell.why)


STANDARDS = [
    "ddr4-2400-x64", "ddr5-4800-x32", "gddr6-14", "gddr7-28", "hbm2-2.0", "hbm3-6.4", "hbm4-8.0",
    "lpddr5-6400-x16", "lpddr6-10667-x12",
]  # fmt: skip
"""Of the eleven of `tests/latency_throughput`; DDR3 and HBM are not described."""


@pytest.mark.parametrize("name", STANDARDS)
def test_streams_and_idle_reads_reach_what_their_formulas_say(name: str) -> None:
    """A stream without refresh the peak; with it 1 - (nRTP + nRP + nRFC + nRCD) / nREFI of that; a
    read that meets another row nRP + nRCD + nCL, and on LPDDR5 one CAS, which starts its clock."""
    free, kept = (load_device(name, [f"controller.refresh={r}"]) for r in ("none", "all_bank"))
    memory = kept.memory
    first, of_bank = memory.activate_command, ("bank",)
    wider = ("rank", "pseudochannel", "channel")
    row = row_delay(memory, "PRE", first, of_bank) + row_delay(memory, "ACT", "RD", of_bank)
    lost = row + row_delay(memory, "RD", "PRE", of_bank) + row_delay(memory, "REFAB", first, wider)
    left = 1 - lost / memory.refresh_ticks()
    assert measure(free, "sequential")["utilization"] == pytest.approx(1, abs=0.011)
    assert measure(kept, "sequential")["utilization"] == pytest.approx(left, rel=0.011)
    beats, tick_ns = (
        memory.ticks(memory.data.read.segments[-1][1]),
        memory.tick_clock.ns_of_ticks(1),
    )
    took = channel_latency(free, "miss") / float(tick_ns) - beats
    cas = memory.clock.ticks_per_ck if name.startswith("lpddr5") else 0
    assert took == pytest.approx(row + memory.ticks(memory.data.read.latency) + cas)
