"""Commands are data: a description calls them as it likes, and may add one that comes at
intervals."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.oracle.audit import audit, audit_file
from hwmodel.oracle.command_log import CODE, CommandLog, write_csv
from hwmodel.specs.device import load_device
from hwmodel.specs.memory_spec import MemorySpec
from tests.hwmodel.one_channel import ChannelResult, simulate_channel

BASE = """
kind: memory
name: mine
summary: LPDDR5 with what its standard's list lacks
based_on: lpddr5-6400-x16
timing:
  tZQI: 20us
  tZQLAT: 100ns
commands:
  {commands}
constraint_changes:
  {rows}
"""
ZQ = {
    "commands": "ZQCAL: {kind: PERIODIC, every: tZQI, banks: BANKS, bus: command, slots: 2}",
    "rows": "- {scope: rank, after: ZQCAL, before: [ACT1, REFPB, RD, WR], delay: tZQLAT}",
}
COUNT = 60_000


def described(folder: Path, commands: str, rows: str) -> MemorySpec:
    file = folder / "mine.yaml"
    text = BASE.replace("{commands}", commands).replace("{rows}", rows)
    unread = [name for name in ("tZQI", "tZQLAT") if text.count(name) == 1]  # a mistake
    for name in unread:
        text = text.replace(f"  {name}", f"  # {name}")
    file.write_text(text.replace("timing:", "timing: {}") if len(unread) == 2 else text)
    return load_device(str(file)).memory


def calibrated(folder: Path, banks: str) -> MemorySpec:
    return described(folder, ZQ["commands"].replace("BANKS", banks), ZQ["rows"])


def unrefreshed(memory: MemorySpec) -> MemorySpec:
    controller = memory.controller.model_copy(update={"refresh": "none"})
    return memory.model_copy(update={"controller": controller})


def read(memory: MemorySpec) -> ChannelResult:
    """In order, as fast as it goes."""
    address, nothing = np.arange(COUNT, dtype=np.int64) * 32, np.zeros(COUNT, np.int64)
    return simulate_channel(memory, nothing, address, nothing)


def calls(log: CommandLog) -> np.ndarray:
    return np.asarray(log.tick[log.command == CODE["PERIODIC"]])


@pytest.mark.parametrize("banks", ["open", "closed"])
def test_a_command_of_no_standard_comes_at_its_interval_and_costs_what_its_rows_say(
    tmp_path: Path, banks: str
) -> None:
    memory = calibrated(tmp_path, banks)
    found = read(memory)
    every, takes = memory.periodic["PERIODIC"], memory.ticks("tZQLAT")
    ticks = calls(found.commands)
    assert every == 16_000 and len(ticks) == found.end_tick // every
    late = np.diff(np.concatenate([[0], ticks])) - every
    assert late.min() >= 0 and late.max() <= memory.closing_ticks()
    if banks == "open":  # rows stay open: nothing but its own time
        assert late.max() < 16
        alone, plain = map(read, map(unrefreshed, (memory, load_device("lpddr5-6400-x16").memory)))
        assert alone.end_tick - plain.end_tick == len(calls(alone.commands)) * takes
    assert audit(memory, found.commands, end_tick=found.end_tick) == []


def test_the_auditor_misses_one_that_does_not_come_and_one_too_many(tmp_path: Path) -> None:
    memory = calibrated(tmp_path, "open")
    log = read(memory).commands
    second = np.flatnonzero(log.command == CODE["PERIODIC"])[1]
    without = log.take(np.arange(len(log.tick)) != second)
    late = "ZQCAL: rank 0 later than 16000 ticks and what closing takes"
    assert {v.rule for v in audit(memory, without)} == {late}
    twice = log.take(np.sort(np.append(np.arange(len(log.tick)), second)))
    assert "ZQCAL: rank 0 sooner than 16000 ticks" in {v.rule for v in audit(memory, twice)}


def test_closed_banks_are_asked_for(tmp_path: Path) -> None:
    log = read(calibrated(tmp_path, "open")).commands
    rules = {v.rule for v in audit(calibrated(tmp_path, "closed"), log)}
    assert "state: refresh of an open bank" in rules


NAMED = """REFpb: {kind: REFPB, bus: command}
  PREpb: {kind: PRE, bus: command}
  REFPB: null
  PRE: null"""


def test_commands_have_the_names_of_the_description_in_logs_and_messages(tmp_path: Path) -> None:
    added = "- {scope: bank, after: REFpb, before: PREpb, delay: 1}"
    memory, plain = described(tmp_path, NAMED, added), load_device("lpddr5-6400-x16").memory
    found, other = read(memory), read(plain)
    for one, two in zip(found.commands, other.commands, strict=True):
        np.testing.assert_array_equal(one, two)
    text = io.StringIO()
    write_csv(text, memory, found.commands)
    assert "REFpb" in text.getvalue() and "REFPB" not in text.getvalue()
    log = tmp_path / "log.csv"
    log.write_text(text.getvalue())
    assert audit_file(memory, log) == (len(found.commands.tick), [])
    with pytest.raises(DescriptionError, match=r"no command '(REF|PRE)pb'; did you mean"):
        audit_file(plain, log)
    early = found.commands.tick - np.where(found.commands.command == CODE["PRE"], 30, 0)
    rules = {v.rule for v in audit(memory, found.commands._replace(tick=early), limit=10**6)}
    assert any("-> PREpb)" in rule for rule in rules)


def test_a_row_of_a_command_that_is_not_described_is_answered(tmp_path: Path) -> None:
    row = "- {scope: rank, after: ZQCALL, before: ACT, delay: 1}"
    with pytest.raises(DescriptionError, match="ZQCALL"):
        described(tmp_path, ZQ["commands"].replace("BANKS", "open"), row)
