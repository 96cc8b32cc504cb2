"""The auditor finds every planted illegality, none in a legal log."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from hwmodel.oracle.audit import Violation, audit
from hwmodel.oracle.command_log import CODE
from hwmodel.oracle.refresh_audit import longest_gap
from hwmodel.specs.commands import COLUMN_COMMANDS
from hwmodel.specs.memory_spec import MemorySpec
from tests.hwmodel.memories import SHIPPED, Case, cases, command_log, document, spec
from tests.hwmodel.oracle.reference import Issued, simulate
from tests.rotation import LONG, spread

LPDDR5 = spec("lpddr5-6400-x16")
HBM2E = spec("hbm2e-3.2")
SINGLE_STEP = spec("hbm2e-3.2", organisation__pseudochannels=1, address_map=[
    "column:1", "bankgroup:2", "column:4", "bank:2", "stack:1", "row",
])  # fmt: skip
HOLE = spec("lpddr5-6400-x16", data__read={"latency": "RL", "segments": [[0, 2], [4, 6]]})
HALF_CLOCKS = spec("hbm2e-3.2", clock__ticks_per_ck=2)
REFI = LPDDR5.ticks("tREFI")
REFRESH_ALL = spec("lpddr5-6400-x16", controller__refresh="all_bank")
POSTPONED = spec("lpddr5-6400-x16", controller__refresh_postpone=8)
IDLE_FIRST = spec(
    "lpddr5-6400-x16", controller__refresh_order="idle_first", controller__refresh_postpone=8
)
DERATED = spec("lpddr5-6400-x16", refresh__derating=0.25, controller__refresh="all_bank")
BL32 = spec("lpddr5-6400-x16-bl32")
HBM3 = spec("hbm3-6.4")
TWO_RANKS = spec("lpddr5-6400-x16", organisation__ranks=2, address_map=[
    "bankgroup:2", "column:6", "bank:2", "row:15", "rank:1",
])  # fmt: skip


def _stacked() -> MemorySpec:
    made = document("hbm2e-3.2")
    made.data["organisation"] |= {"stacks": 2, "ranks": 2}
    made.data["address_map"] = [
        "column:5",
        "pseudochannel:1",
        "bankgroup:2",
        "bank:2",
        "stack:1",
        "rank:1",
        "row",
    ]
    made.data["constraints"] += [
        {"scope": "other_stack", "after": ["RD"], "before": ["RD"], "delay": 7},
        {"scope": "other_rank", "after": ["RD"], "before": ["RD"], "delay": 9},
        {"scope": "stack", "after": ["PRE"], "before": ["PRE"], "delay": 3},
    ]
    return made.build(MemorySpec)


STACKED = _stacked()


def parse(memory: MemorySpec, text: str) -> list[Issued]:
    """`16 RD b3 r5 c0; ...`: tick, command, and of what it addresses p: pseudo-channel, k: rank,
    s: stack, b: bank of the stack, r: row, c: column."""
    found = []
    for line in filter(None, map(str.strip, text.split(";"))):
        tick, command, *fields = line.split()
        given = {field[0]: int(field[1:]) for field in fields}
        bank = given.get("b")
        per_group = memory.organisation.banks_per_group
        found.append(
            Issued(
                int(tick),
                command,
                given.get("p", 0),
                given.get("k", 0),
                -1 if bank is None else given.get("s", 0),
                -1 if bank is None else bank // per_group,
                -1 if bank is None else bank % per_group,
                given.get("r", -1),
                given.get("c", -1),
            )
        )
    return found


def found(memory: MemorySpec, text: str, refresh: bool = False) -> list[Violation]:
    return audit(memory, command_log(parse(memory, text)), refresh=refresh)


OPEN = "0 ACT1 b0 r5; 1 ACT2 b0 r5; 15 CAS; 16 RD b0 r5 c0; "
"""A legal beginning: bank 0 of LPDDR5 open at row 5, data clock running."""

OPEN_MASKED = "0 ACT1 b0 r5; 1 ACT2 b0 r5; 16 CAS; 17 MWR b0 r5 c0; "
"""The same with a masked write."""

PLANTED = {
    "a column command to a closed bank": (LPDDR5, "15 CAS; 16 RD b0 r5 c0", "to a closed bank"),
    "a column command to another row": (LPDDR5, OPEN + "20 RD b0 r6 c0", "row that is not open"),
    "a read after RDA": (LPDDR5, OPEN + "20 RDA b0 r5 c1; 24 RD b0 r5 c2", "to a closed bank"),
    "a write after WRA": (LPDDR5, OPEN + "35 WRA b0 r5 c1; 39 WR b0 r5 c2", "to a closed bank"),
    "a read after PREA": (LPDDR5, OPEN + "35 PREA; 36 RD b0 r5 c1", "to a closed bank"),
    "a read after PRE": (LPDDR5, OPEN + "35 PRE b0; 36 RD b0 r5 c1", "to a closed bank"),
    "an activation of an open bank": (
        LPDDR5,
        OPEN + "90 ACT1 b0 r6; 91 ACT2 b0 r6",
        "of an open bank",
    ),
    "a one-step activation of an open bank": (
        SINGLE_STEP,
        "0 ACT b0 r1; 99 ACT b0 r2",
        "of an open bank",
    ),
    "a precharge of a closed bank": (LPDDR5, "0 PRE b0", "PRE of a closed bank"),
    "a precharge twice": (LPDDR5, OPEN + "35 PRE b0; 90 PRE b0", "PRE of a closed bank"),
    "a precharge of all where none is open": (LPDDR5, "0 PREA", "without open banks"),
    "a refresh of an open bank": (LPDDR5, OPEN + "90 REFPB b0", "refresh of an open bank"),
    "a refresh whose other bank is open": (
        LPDDR5,
        "0 ACT1 b8 r1; 1 ACT2 b8 r1; 90 REFPB b0",
        "refresh of an open bank",
    ),
    "a refresh of all with one open": (LPDDR5, OPEN + "90 REFAB", "refresh of an open bank"),
    "an ACT2 alone": (LPDDR5, "0 ACT2 b0 r5", "ACT2 without its ACT1"),
    "an ACT2 of another bank": (LPDDR5, "0 ACT1 b0 r5; 1 ACT2 b1 r5", "ACT2 without its ACT1"),
    "an ACT2 of another row": (LPDDR5, "0 ACT1 b0 r5; 1 ACT2 b0 r6", "another row than its ACT1"),
    "an ACT2 too late": (LPDDR5, "0 ACT1 b0 r5; 9 ACT2 b0 r5", "max_gap tAAD = 8 nCK"),
    "an ACT2 that never comes": (
        LPDDR5,
        "0 ACT1 b0 r5; 80 ACT1 b1 r1; 81 ACT2 b1 r1",
        "never came",
    ),
    "a read inside a pair": (
        LPDDR5,
        "0 ACT1 b0 r5; 1 CAS; 2 RD b0 r5 c0; 3 ACT2 b0 r5",
        "between ACT1 and",
    ),
    "a PREA inside a pair": (LPDDR5, "0 ACT1 b0 r5; 2 PREA; 3 ACT2 b0 r5", "between ACT1 and ACT2"),
    "a refresh inside a pair": (
        LPDDR5,
        "0 ACT1 b8 r5; 2 REFPB b0; 3 ACT2 b8 r5",
        "between ACT1 and ACT2",
    ),
    "two pairs at once": (
        LPDDR5,
        "0 ACT1 b0 r5; 2 ACT1 b1 r5; 4 ACT2 b0 r5; 6 ACT2 b1 r5",
        "while another pair is open",
    ),
    "two commands in one slot": (LPDDR5, OPEN + "16 PRE b1", "bus command: occupied"),
    "a command in the second slot of an activation": (
        HBM2E,
        "0 ACT p0 b0 r1; 1 ACT p1 b0 r1",
        "bus row_command: occupied",
    ),
    "a masked write too soon after another": (
        LPDDR5,
        OPEN_MASKED + "28 CAS; 32 MWR b0 r5 c1",
        "bank (MWR|MWRA -> MWR|MWRA) tCCDMW = 16 nCK: 15 ",
    ),
    "a masked write where a write is too soon": (
        LPDDR5,
        "0 ACT1 b0 r5; 1 ACT2 b0 r5; 14 CAS; 15 MWR b0 r5 c0",
        "bank (ACT -> RD|RDA|WR|WRA) tRCD = 15 nCK: 14 ",
    ),
    "a read too soon after a masked write": (
        LPDDR5,
        OPEN_MASKED + "30 CAS; 31 RD b0 r5 c1",
        "bankgroup (WR|WRA -> RD|RDA)",
    ),
    "a write after MWRA": (
        LPDDR5,
        OPEN_MASKED + "28 CAS; 33 MWRA b0 r5 c1; 37 WR b0 r5 c2",
        "to a closed bank",
    ),
    "the burst of a masked write upon a burst": (
        LPDDR5,
        OPEN + "24 MWR b0 r5 c1",
        "data: DQ overlaps",
    ),
    "a masked write without CAS": (
        LPDDR5,
        OPEN_MASKED + "37 MWR b0 r5 c1",
        "CAS is missing",
    ),
    "a masked write that the memory lacks": (HBM2E, "0 MWR b0 r5 c1", "no such command"),
    "a burst upon a burst": (LPDDR5, OPEN + "24 WR b0 r5 c1", "data: DQ overlaps"),
    "a burst upon the burst of a later command": (
        LPDDR5,
        OPEN + "20 RD b0 r5 c1; 29 WR b0 r5 c1",
        "data: DQ overlaps",
    ),
    "a burst upon the second half of a burst": (HOLE, OPEN + "20 RD b0 r5 c1", "data: DQ overlaps"),
    "a fifth activation in the window": (
        SINGLE_STEP,
        "0 ACT b0 r1; 4 ACT b4 r1; 8 ACT b8 r1; 12 ACT b12 r1; 15 ACT b1 r1",
        "window 4",
    ),
    "a read without CAS": (LPDDR5, "0 ACT1 b0 r5; 1 ACT2 b0 r5; 16 RD b0 r5 c0", "CAS is missing"),
    "a read after the clock has stopped": (LPDDR5, OPEN + "37 RD b0 r5 c1", "CAS is missing"),
    "a write after a read's clock has stopped": (LPDDR5, OPEN + "50 WR b0 r5 c1", "CAS is missing"),
    "time that runs back": (LPDDR5, OPEN + "12 PRE b1", "earlier than the one before"),
    "a command before time": (LPDDR5, "-3 CAS", "before tick 0"),
    "a command that the memory lacks": (LPDDR5, "0 ACT b0 r1", "no such command"),
    "a CAS where there is none": (HBM2E, "0 CAS", "no such command"),
    "a bank that does not exist": (LPDDR5, "0 ACT1 b16 r1", "bankgroup outside 0 to 3"),
    "a rank that does not exist": (LPDDR5, "0 PREA k1", "rank outside 0 to 0"),
    "a pseudo-channel that does not exist": (HBM2E, "0 ACT p2 b0 r1", "pseudochannel outside"),
    "a row that does not exist": (LPDDR5, "0 ACT1 b0 r32768", "row outside 0 to 32767"),
    "a column that does not exist": (LPDDR5, OPEN + "20 RD b0 r5 c64", "column outside 0 to 63"),
    "a read without its bank": (LPDDR5, "0 RD r5 c0", "bank outside"),
    "a refresh not at the head of its set": (LPDDR5, "0 REFPB b8", "not the first bank"),
    "an activation of the other bank of a set under refresh": (
        LPDDR5,
        "0 REFPB b0; 90 ACT1 b8 r1; 91 ACT2 b8 r1",
        "bank (REFPB -> ACT1|REFPB)",
    ),
    "a refresh too soon after its other bank closed": (
        LPDDR5,
        "0 ACT1 b8 r1; 1 ACT2 b8 r1; 40 PRE b8; 54 REFPB b0",
        "bank (PRE -> ACT1|REFPB)",
    ),
    "a read too soon after the other stack": (
        STACKED,
        "0 ACT b0 r1; 20 ACT b0 s1 r1; 50 RD b0 r1 c0; 56 RD b0 s1 r1 c0",
        "other_stack (RD -> RD) 7",
    ),
    "a read too soon after the other rank": (
        STACKED,
        "0 ACT b0 r1; 20 ACT b0 k1 r1; 50 RD b0 r1 c0; 58 RD b0 k1 r1 c0",
        "other_rank (RD -> RD) 9",
    ),
    "a precharge too soon after one in its stack": (
        STACKED,
        "0 ACT b0 r1; 20 ACT b5 r1; 90 PRE b0; 92 PRE b5",
        "stack (PRE -> PRE) 3",
    ),
    "a read of one rank on the data clock of the other": (
        TWO_RANKS,
        "0 ACT1 b0 k1 r5; 1 ACT2 b0 k1 r5; 15 CAS; 17 RD b0 k1 r5 c0",
        "CAS is missing",
    ),
    "a read of the other rank too soon": (
        TWO_RANKS,
        "0 ACT1 b0 r5; 1 ACT2 b0 r5; 4 ACT1 b0 k1 r5; 5 ACT2 b0 k1 r5; 18 CAS; 19 CAS k1; "
        "20 RD b0 r5 c0; 23 RD b0 k1 r5 c0",
        "other_rank (RD|RDA -> RD|RDA)",
    ),
    "a write of the other rank too soon after a read": (
        TWO_RANKS,
        "0 ACT1 b0 r5; 1 ACT2 b0 r5; 4 ACT1 b0 k1 r5; 5 ACT2 b0 k1 r5; 18 CAS; 19 CAS k1; "
        "20 RD b0 r5 c0; 30 WR b0 k1 r5 c0",
        "other_rank (RD|RDA -> WR|WRA)",
    ),
    "a read before the data clock's preamble is over": (
        LPDDR5,
        "0 ACT1 b0 r5; 1 ACT2 b0 r5; 16 CAS; 16 RD b0 r5 c0",
        "rank (CAS -> RD|RDA)",
    ),
    "a burst of 32 upon the second half of another": (
        BL32,
        "0 ACT1 b0 r5; 1 ACT2 b0 r5; 4 ACT1 b4 r5; 5 ACT2 b4 r5; 19 CAS; "
        "20 RD b0 r5 c1; 24 RD b4 r5 c1",
        "data: DQ overlaps",
    ),
    "a read of HBM3 too soon after the other stack id": (
        HBM3,
        "0 ACT b0 r1; 20 ACT b0 s1 r1; 200 RD b0 r1 c0; 205 RD b0 s1 r1 c0",
        "other_stack (RD|RDA -> RD|RDA) tCCD_R = 3 nCK: 2.5 ",
    ),
    "a write of HBM3 too soon after the other stack id": (
        HBM3,
        "0 ACT b0 r1; 20 ACT b0 s1 r1; 200 WR b0 r1 c0; 203 WR b0 s1 r1 c0",
        "pseudochannel (WR|WRA -> WR|WRA) tCCD_S = 2 nCK: 1.5 ",
    ),
    "a command in the last half clock of an activation": (
        HBM3,
        "0 ACT p0 b0 r1; 2 PRE p1 b0",
        "bus row_command: occupied",
    ),
    "a fifth activation of HBM3 in the window, half a clock early": (
        HBM3,
        "0 ACT b0 r1; 10 ACT b4 r1; 20 ACT b8 r1; 30 ACT b12 r1; 47 ACT b1 r1",
        "pseudochannel (window 4, ACT|REFPB -> ACT|REFPB) tFAW = 24 nCK: 23.5 ",
    ),
    "an activation of HBM3 in the window that began with a refresh": (
        HBM3,
        "0 REFPB b0; 26 ACT b4 r1; 34 ACT b8 r1; 42 ACT b12 r1; 47 ACT b5 r1",
        "tFAW = 24 nCK: 23.5 ",
    ),
    "a refresh of HBM3 too soon after an activation in its bank group": (
        HBM3,
        "0 ACT b0 r1; 9 REFPB b1",
        "bankgroup (ACT -> ACT|REFPB) tRRD_L = 5 nCK: 4.5 ",
    ),
    "two refreshes of sets too close": (
        LPDDR5,
        "0 REFPB b0; 71 REFPB b1",
        "tpbR2pbR",
    ),
    "an activation too soon after a refresh elsewhere": (
        LPDDR5,
        "0 REFPB b0; 5 ACT1 b1 r1; 6 ACT2 b1 r1",
        "tpbR2act",
    ),
    "a refresh of all after one of a set": (LPDDR5, "0 REFPB b0; 95 REFAB", "REFPB -> REFAB"),
    "an activation after a refresh of all": (
        LPDDR5,
        "0 REFAB; 167 ACT1 b0 r1; 168 ACT2 b0 r1",
        "REFAB -> ACT1|REFAB|REFPB",
    ),
    "a row too soon by half a clock": (
        HALF_CLOCKS,
        "0 ACT b0 r1; 38 RD b0 r1 c0",
        "tRCDRD = 19.5 nCK: 19 ",
    ),
}


@pytest.mark.parametrize("planted", PLANTED.values(), ids=PLANTED.keys())
def test_auditor_finds(planted: tuple[MemorySpec, str, str]) -> None:
    memory, text, rule = planted
    assert any(rule in v.rule for v in found(memory, text)), found(memory, text)


LEGAL = {
    "a read": (LPDDR5, OPEN),
    "reads while the clock runs": (LPDDR5, OPEN + "20 RD b0 r5 c1; 40 RD b0 r5 c2"),
    "a CAS in time": (LPDDR5, OPEN + "49 CAS; 50 RD b0 r5 c1"),
    "a burst in the hole of a burst": (
        HOLE,
        "0 ACT1 b0 r5; 1 ACT2 b0 r5; 4 ACT1 b4 r5; 5 ACT2 b4 r5; 19 CAS; "
        "20 RD b0 r5 c1; 22 RD b4 r5 c1",
    ),
    "a burst of 32 between the halves of another": (
        BL32,
        "0 ACT1 b0 r5; 1 ACT2 b0 r5; 4 ACT1 b4 r5; 5 ACT2 b4 r5; 19 CAS; "
        "20 RD b0 r5 c1; 22 RD b4 r5 c1",
    ),
    "a refresh that covers two banks, once in the window": (
        LPDDR5,
        "0 REFPB b0; 6 ACT1 b1 r1; 7 ACT2 b1 r1; 10 ACT1 b5 r1; 11 ACT2 b5 r1; 14 ACT1 b6 r1; "
        "15 ACT2 b6 r1",
    ),
    "writes of HBM3 to two stack ids, tCCD_S apart": (
        HBM3,
        "0 ACT b0 r1; 20 ACT b0 s1 r1; 200 WR b0 r1 c0; 204 WR b0 s1 r1 c0",
    ),
    "half clocks on the buses of HBM3": (
        HBM3,
        "0 ACT p0 b0 r1; 3 ACT p1 b0 r1; 62 RD p0 b0 r1 c0; 65 RD p1 b0 r1 c0",
    ),
    "a data clock for each rank": (
        TWO_RANKS,
        "0 ACT1 b0 r5; 1 ACT2 b0 r5; 4 ACT1 b0 k1 r5; 5 ACT2 b0 k1 r5; 18 CAS; 19 CAS k1; "
        "20 RD b0 r5 c0; 24 RD b0 k1 r5 c0",
    ),
    "masked writes far enough apart": (LPDDR5, OPEN_MASKED + "28 CAS; 33 MWR b0 r5 c1"),
    "a write after a masked write": (LPDDR5, OPEN_MASKED + "21 WR b0 r5 c1"),
    "an ACT2 at its deadline": (LPDDR5, "0 ACT1 b0 r5; 8 ACT2 b0 r5"),
    "a pair that is open at the end": (LPDDR5, OPEN + "20 ACT1 b1 r5"),
    "an activation beside a refresh": (LPDDR5, "0 REFPB b0; 6 ACT1 b1 r1; 7 ACT2 b1 r1"),
    "two pseudo-channels, each with its DQ": (
        HBM2E,
        "0 ACT p0 b0 r1; 2 ACT p1 b0 r1; 30 RD p0 b0 r1 c0; 31 RD p1 b0 r1 c0",
    ),
    "reads of two ranks far enough apart": (
        STACKED,
        "0 ACT b0 r1; 20 ACT b0 k1 r1; 50 RD b0 r1 c0; 59 RD b0 k1 r1 c0",
    ),
    "reads of two stacks far enough apart": (
        STACKED,
        "0 ACT b0 r1; 20 ACT b0 s1 r1; 50 RD b0 r1 c0; 57 RD b0 s1 r1 c0",
    ),
    "nothing": (LPDDR5, ""),
}


@pytest.mark.parametrize("legal", LEGAL.values(), ids=LEGAL.keys())
def test_auditor_accepts(legal: tuple[MemorySpec, str]) -> None:
    assert found(*legal) == []


def refreshes(ticks_of_sets: list[tuple[int, int]]) -> str:
    return "; ".join(f"{tick} REFPB b{number}" for tick, number in sorted(ticks_of_sets))


def rounds(count: int, start: int = 0) -> list[tuple[int, int]]:
    """Sets 0 to 7 in order, `count` times, each on its due tick."""
    return [(start + (k + 1) * REFI // 8, k % 8) for k in range(count * 8)]


def late(items: list[tuple[int, int]], ticks: int) -> list[tuple[int, int]]:
    return [(tick + ticks, number) for tick, number in items]


def all_banks(gaps: list[float], interval: int = REFI) -> str:
    """REFAB after each of `gaps` intervals."""
    return "; ".join(f"{int(k * interval)} REFAB" for k in np.cumsum(gaps).tolist())


REFRESHES = {
    "the wrong set first": (LPDDR5, refreshes([(400, 1)]), "not the set whose turn"),
    "a set twice": (LPDDR5, refreshes([(400, 0), (800, 0)]), "not the set whose turn"),
    "a set left out": (LPDDR5, refreshes([(400, 0), (800, 2)]), "not the set whose turn"),
    "a set twice in a round of any order": (
        IDLE_FIRST,
        refreshes([(400, 3), (800, 1), (1200, 3)]),
        "the set was refreshed in this round",
    ),
    "a set twice in the second round of any order": (
        IDLE_FIRST,
        refreshes([*rounds(1), *late([(400, 3), (800, 3)], REFI)]),
        "the set was refreshed in this round",
    ),
    "a pause of more than an interval": (
        LPDDR5,
        refreshes(rounds(2) + late(rounds(2), 3 * REFI)),
        "set 0 waits longer than 1.",
    ),
    "a pause of more than nine intervals": (
        POSTPONED,
        refreshes(rounds(2) + late(rounds(2), 10 * REFI + 1)),
        "set 0 waits longer than 9 intervals",
    ),
    "a pause of more than nine intervals in any order": (
        IDLE_FIRST,
        refreshes(rounds(2) + late(rounds(2), 10 * REFI + 1)),
        "set 0 waits longer than 9 intervals",
    ),
    "a pause between refreshes of all": (
        REFRESH_ALL,
        all_banks([1, 1, 1.5, 1]),
        "rank 0 waits longer than 1.",
    ),
    "a rank that is never refreshed": (
        TWO_RANKS,
        refreshes(rounds(4)),
        "rank 1 set 0 more than 1 behind at the end",
    ),
    "no refresh at all": (LPDDR5, f"{10 * REFI} CAS", "set 7 more than 1 behind at the end"),
    "no refresh at all over nine intervals": (
        POSTPONED,
        f"{9 * REFI} CAS",
        "rank 0 set 7 more than 8 behind at the end",
    ),
    "no refresh of all banks": (
        REFRESH_ALL,
        f"{10 * REFI} CAS",
        "rank 0 more than 1 behind at the end",
    ),
    "half as many as are due": (
        REFRESH_ALL,
        all_banks([2] * 14),
        "rank 0 more than 1 behind",
    ),
    "as many as are due without derating": (
        DERATED,
        all_banks([1] * 4),
        "rank 0 more than 1 behind",
    ),
    "twice as many as are due": (REFRESH_ALL, all_banks([0.5] * 24), "rank 0 more than 1 ahead"),
    "a refresh of sets where ranks are due": (
        REFRESH_ALL,
        refreshes(rounds(12)),
        "rank 0 more than 1 behind at the end",
    ),
}


@pytest.mark.parametrize("planted", REFRESHES.values(), ids=REFRESHES.keys())
def test_auditor_finds_in_refreshes(planted: tuple[MemorySpec, str, str]) -> None:
    memory, text, rule = planted
    rules = [v.rule for v in found(memory, text, refresh=True)]
    assert any(rule in text for text in rules), rules
    assert not any(rule in v.rule for v in found(memory, text, refresh=False))


def test_refreshes_on_time_and_as_late_as_may_be_are_accepted() -> None:
    assert found(LPDDR5, refreshes(rounds(12)), refresh=True) == []
    assert found(POSTPONED, refreshes(late(rounds(12), 7 * REFI)), refresh=True) == []
    assert found(IDLE_FIRST, refreshes(rounds(2) + late(rounds(2), 10 * REFI - 1)), True) == []
    assert found(REFRESH_ALL, all_banks([1] * 12), refresh=True) == []
    assert found(DERATED, all_banks([0.25] * 48), refresh=True) == []


def test_a_longest_gap_is_nine_intervals_whatever_the_memory() -> None:
    for name in SHIPPED:
        memory = spec(name, controller__refresh_postpone=8)
        assert longest_gap(memory) <= 9 * memory.refresh_ticks()
        at_once = spec(
            name,
            controller__refresh_postpone=0,
            controller__refresh_order="round_robin",
            controller__activation_buffer=0,
        )
        assert at_once.refresh_ticks() < longest_gap(at_once) < 1.5 * at_once.refresh_ticks()


def test_one_pass_finds_all_and_limit_stops() -> None:
    text = "0 PRE b0; 0 PRE b1; 20 RD b2 r5 c0; 21 REFPB b9"
    everything = found(LPDDR5, text)
    assert len({v.rule for v in everything}) >= 5
    assert [v.index for v in everything] == sorted(v.index for v in everything)
    assert len(audit(LPDDR5, command_log(parse(LPDDR5, text)), limit=2)) == 2


def test_violation_tells_tick_rule_and_command() -> None:
    early = "0 ACT1 b5 r7; 1 ACT2 b5 r7; 14 CAS; 15 RD b5 r7 c3"
    (violation,) = found(LPDDR5, early)
    assert violation.tick == 15 and violation.index == 3
    assert violation.rule == "bank (ACT -> RD|RDA|WR|WRA) tRCD = 15 nCK: 14 (ACT2 at 1)"
    assert (
        violation.command == "RD pseudochannel 0 rank 0 stack 0 bankgroup 1 bank 1 row 7 column 3"
    )


@pytest.mark.parametrize(
    ("name", "policy"), spread(SHIPPED, ["none", "all_bank", "per_bank"], every=6)
)
def test_auditor_accepts_the_oracle_on_shipped_memories(name: str, policy: str) -> None:
    if policy != "none" and policy not in document(name).data["refresh"]:
        policy = "all_bank"  # the only one that it has
    memory = spec(name, controller__refresh=policy)
    chance = np.random.default_rng(3)
    burst = memory.organisation.burst_bytes
    requests = [
        (i * 8, int(chance.integers(0, 1 << 14)) * burst, bool(chance.random() < 0.3))
        for i in range(1500 if LONG else 500)
    ]
    result = simulate(memory, requests)
    assert audit(memory, command_log(result.commands), end_tick=result.end_tick) == []


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=cases(60))
def test_a_log_that_lost_its_first_activations_is_found_out(case: Case) -> None:
    log = command_log(simulate(case.memory, case.requests).commands)
    columns = np.flatnonzero(np.isin(log.command, [CODE[c] for c in COLUMN_COMMANDS]))
    opens = np.flatnonzero(np.isin(log.command[: columns[0]], [CODE["ACT"], CODE["ACT2"]]))
    rest = np.delete(np.arange(len(log.tick)), opens)
    rules = [v.rule for v in audit(case.memory, log.take(rest), refresh=False, limit=1000)]
    assert any("closed bank" in rule or "pair" in rule for rule in rules)
