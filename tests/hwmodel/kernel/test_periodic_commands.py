"""Several commands of kind PERIODIC, each with its own interval, banks, bus, slots and rows."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.kernel.timing import lower
from hwmodel.measure.open_loop import OpenLoop, called
from hwmodel.oracle.audit import audit, audit_file
from hwmodel.oracle.command_log import CODE, CommandLog, write_csv
from hwmodel.specs.device import load_device
from hwmodel.specs.memory_spec import MemorySpec
from sweeps.report.command_timeline import Clocks, timeline
from tests.hwmodel.kernel.test_described_commands import COUNT, described, read, unrefreshed
from tests.hwmodel.kernel.test_kernel_equals_oracle import assert_equal, stream
from tests.hwmodel.memories import Case
from tests.hwmodel.one_channel import simulate_channel

PLAIN = load_device("lpddr5-6400-x16").memory
TAKES = {"ZQCAL": 80, "MRR": 12, "OSC": 30}
"""Clocks, which are ticks, for which each keeps others off its rank."""
EVERY = {"ZQCAL": 16_000, "MRR": 5_300, "OSC": 9_100}
ROWS = "- {scope: rank, after: NAME, before: [ACT1, PRE, REFPB, RD, WR], delay: TAKES}"


def several(folder: Path, banks: dict[str, str], every: dict[str, int] = EVERY) -> MemorySpec:
    """LPDDR5 with these commands, name -> banks."""
    commands = [
        f"{name}: {{kind: PERIODIC, every: {every[name]}, banks: {state}, bus: command, slots: 2}}"
        for name, state in banks.items()
    ]
    rows = [ROWS.replace("NAME", name).replace("TAKES", str(TAKES[name])) for name in banks]
    return described(folder, "\n  ".join(commands), "\n  ".join(rows))


def kinds(memory: MemorySpec) -> dict[str, int]:
    """Name of each -> its number in logs."""
    return {memory.command_name(kind): CODE[kind] for kind in memory.periodic}


def calls(memory: MemorySpec, log: CommandLog, rank: int = 0) -> dict[str, np.ndarray]:
    """Ticks of each, by its name."""
    mine = log.rank == rank
    return {name: log.tick[mine & (log.command == code)] for name, code in kinds(memory).items()}


@pytest.mark.parametrize("names", [["ZQCAL", "MRR"], ["MRR", "OSC", "ZQCAL"]])
def test_each_comes_at_its_interval_and_costs_what_its_rows_say(
    tmp_path: Path, names: list[str]
) -> None:
    memory = several(tmp_path, dict.fromkeys(names, "open"))
    alone, plain = read(unrefreshed(memory)), read(unrefreshed(PLAIN))
    found = calls(memory, alone.commands)
    assert list(found) == names
    for name, ticks in found.items():
        assert len(ticks) == alone.end_tick // EVERY[name]
        late = np.diff(np.concatenate([[0], ticks])) - EVERY[name]
        assert late.min() >= 0 and late.max() < 16
    lost = alone.end_tick - plain.end_tick
    told = sum(len(ticks) * TAKES[name] for name, ticks in found.items())
    # one less where it comes in the odd clock between two reads
    assert told - sum(map(len, found.values())) <= lost <= told
    whole = read(memory)
    assert audit(memory, whole.commands, end_tick=whole.end_tick) == []


def test_open_and_closed_ones_stand_side_by_side(tmp_path: Path) -> None:
    memory = several(tmp_path, {"ZQCAL": "closed", "MRR": "open", "OSC": "closed"})
    found = read(memory)
    for name, ticks in calls(memory, found.commands).items():
        late = np.diff(np.concatenate([[0], ticks])) - EVERY[name]
        assert len(ticks) > 5 and late.min() >= 0
        assert late.max() < (TAKES["ZQCAL"] if name == "MRR" else memory.closing_ticks())
    assert audit(memory, found.commands, end_tick=found.end_tick) == []
    before = {kind: found.commands.command[np.flatnonzero(found.commands.command == code) - 1]
              for kind, code in kinds(memory).items()}  # fmt: skip
    assert (before["ZQCAL"] == CODE["PREA"]).all() and (before["OSC"] == CODE["PREA"]).all()
    assert not (before["MRR"] == CODE["PREA"]).all()


@pytest.mark.parametrize("names", [["ZQCAL", "MRR", "OSC"], ["OSC", "MRR", "ZQCAL"]])
def test_of_several_due_at_once_the_first_of_the_description_is_first(
    tmp_path: Path, names: list[str]
) -> None:
    memory = several(tmp_path, dict.fromkeys(names, "open"), dict.fromkeys(names, 10_000))
    ticks = calls(memory, read(unrefreshed(memory)).commands)
    first = [int(ticks[name][0]) for name in names]
    assert first == [first[0], first[0] + 2, first[0] + 4]  # each holds the bus for two clocks


def test_each_rank_has_its_own_and_the_other_one_goes_on(tmp_path: Path) -> None:
    both = several(tmp_path, {"ZQCAL": "open", "MRR": "open"})
    fields = ", ".join(f"{name}:{bits}" for name, bits in both.resolved_address_map())
    head = f"organisation: {{ranks: 2}}\naddress_map: [{fields}, rank:1]\ntiming:"
    text = (tmp_path / "mine.yaml").read_text()
    (tmp_path / "mine.yaml").write_text(text.replace("timing:", head, 1))
    memory = unrefreshed(load_device(str(tmp_path / "mine.yaml")).memory)
    half = memory.organisation.capacity_bytes // 2
    address = np.arange(COUNT, dtype=np.int64) // 2 * 32 + np.arange(COUNT) % 2 * half
    nothing = np.zeros(COUNT, np.int64)
    found = simulate_channel(memory, nothing, address, nothing)
    for rank in range(2):
        for name, ticks in calls(memory, found.commands, rank).items():
            assert len(ticks) == found.end_tick // EVERY[name]
    assert audit(memory, found.commands, end_tick=found.end_tick, refresh=False) == []
    zq = calls(memory, found.commands, 1)["ZQCAL"][2]
    while_it_lasts = (found.commands.tick > zq) & (found.commands.tick < zq + TAKES["ZQCAL"])
    columns = found.commands.command == CODE["RD"]
    assert set(found.commands.rank[while_it_lasts & columns].tolist()) <= {0}


@pytest.mark.parametrize("scope", ["channel", "pseudochannel", "other_rank"])
def test_columns_of_other_ranks_do_not_put_one_off(tmp_path: Path, scope: str) -> None:
    """It waits 12 CK for a read of any rank, and reads come every two or four."""
    row = f"- {{scope: {scope}, after: [RD, RDA], before: MRR, delay: 12}}"
    made = described(
        tmp_path, "MRR: {kind: PERIODIC, every: 900, banks: open, bus: command, slots: 2}", row
    )
    text = (tmp_path / "mine.yaml").read_text()
    fields = ", ".join(f"{name}:{bits}" for name, bits in made.resolved_address_map())
    head = f"organisation: {{ranks: 2}}\naddress_map: [{fields}, rank:1]\ntiming:"
    (tmp_path / "mine.yaml").write_text(text.replace("timing:", head, 1))
    memory = load_device(str(tmp_path / "mine.yaml")).memory
    address, nothing = np.arange(COUNT, dtype=np.int64) * 32, np.zeros(COUNT, np.int64)
    found = simulate_channel(memory, nothing, address, nothing)
    for rank in range(2):
        ticks = calls(memory, found.commands, rank)["MRR"]
        late = np.diff(np.concatenate([[0], ticks])) - 900
        assert len(ticks) >= found.end_tick // 950 and late.min() >= 0 and late.max() < 40
    assert audit(memory, found.commands, end_tick=found.end_tick) == []
    few = [(0, at, 0) for at in address[:1500].tolist()]
    assert_equal(Case(memory, few, 0, 1))


def test_the_auditor_misses_the_second_where_the_first_comes(tmp_path: Path) -> None:
    memory = several(tmp_path, {"ZQCAL": "open", "MRR": "closed"})
    log = read(memory).commands
    third = np.flatnonzero(log.command == kinds(memory)["MRR"])[2]
    without = log.take(np.arange(len(log.tick)) != third)
    rules = {violation.rule for violation in audit(memory, without)}
    assert rules == {"MRR: rank 0 later than 5300 ticks and what closing takes"}
    early = log._replace(tick=log.tick - 300 * (np.arange(len(log.tick)) == third))
    assert "MRR: rank 0 sooner than 5300 ticks" in {v.rule for v in audit(memory, early)}


def test_logs_counts_and_pictures_have_their_names(tmp_path: Path) -> None:
    memory = several(tmp_path, {"ZQCAL": "closed", "MRR": "open", "OSC": "open"})
    log = read(memory).commands
    text = io.StringIO()
    write_csv(text, memory, log)
    file = tmp_path / "log.csv"
    file.write_text(text.getvalue())
    assert "PERIODIC" not in text.getvalue() and audit_file(memory, file) == (len(log.tick), [])
    run = OpenLoop(memory)
    run.feed(0, np.arange(COUNT, dtype=np.int64) * 32, np.zeros(COUNT, np.int64))
    run.finish()
    counts = called(memory, run.commands)
    assert {n: counts[n] for n in TAKES} == {n: len(t) for n, t in calls(memory, log).items()}
    window = Clocks(EVERY["OSC"] - 50, EVERY["OSC"] + 200)
    drawn = timeline(memory, "mine", [(0, log)], window)
    told = [span.words for span in drawn.spans if span.kind == "periodic"]
    assert told == ["OSC"] and "periodic" in drawn.kinds


def many(count: int, every: int = 80_000) -> str:
    return "\n  ".join(
        f"C{n}: {{kind: PERIODIC, every: {every + 16 * n}, banks: open, bus: command}}"
        for n in range(count)
    )


def test_as_many_fit_as_commands_are_never_issued(tmp_path: Path) -> None:
    fit = len(PLAIN.unissued)
    assert fit == 8
    row = "- {scope: rank, after: C7, before: [ACT1, C0], delay: 50}"
    memory = described(tmp_path, many(fit), row)
    found = read(memory)
    assert audit(memory, found.commands, end_tick=found.end_tick) == []
    assert all(len(ticks) == 1 for ticks in calls(memory, found.commands).values())
    says = r"commands\.C8: 8 commands of kind PERIODIC fit beside those .* issues; there are 9"
    with pytest.raises(DescriptionError, match=says):
        described(tmp_path, many(fit + 1), row)
    with pytest.raises(DescriptionError, match=r"commands\.C12: at most 12 .* fit"):
        described(tmp_path, many(40), row)
    closed = memory.controller.model_copy(update={"page_policy": "closed"})
    with pytest.raises(DescriptionError, match=r"mine: commands\.C5: 5 commands"):
        lower(memory.model_copy(update={"controller": closed}))


@pytest.mark.parametrize("banks", ["open", "closed"])
def test_kernel_and_oracle_agree_where_every_lane_is_taken(tmp_path: Path, banks: str) -> None:
    fit = 8 if banks == "open" else 7  # PREA closes the banks
    commands = many(fit, 600).replace("banks: open", "banks: " + banks, 1).replace("600", "9999", 1)
    row = "- {scope: rank, after: [C0, C2, C6], before: [RD, WR, ACT1, C3, C6], delay: 40}"
    memory = described(tmp_path, commands, row)
    arrival, address, write = stream(memory, "mixed", 600)
    kind = write * (1 + (np.arange(600) % 5 == 0))
    requests = list(zip(arrival.tolist(), address.tolist(), kind.tolist(), strict=True))
    assert_equal(Case(memory, requests, 0, 1))
