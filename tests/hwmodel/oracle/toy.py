"""A memory with numbers that are easy to add, requests for it, and what became of them in words."""

from __future__ import annotations

from typing import Any

from hwmodel.description.description import Mark
from hwmodel.description.yaml_reader import loads
from hwmodel.specs.memory_spec import MemorySpec
from tests.hwmodel.oracle.reference_state import ReferenceResult

TOY = """
kind: memory
name: toy
summary: numbers that are easy to add
organisation:
  {bankgroups: 4, banks_per_group: 2, rows: 16, row_bytes: 128B, width_bits: 16, burst_length: 8}
clock: {tCK: 1ns, beats_per_ck: 4}
timing:
  nBL: 2nCK
  RL: 6nCK
  WL: 3nCK
  tRCD: 5nCK
  tRP: 4nCK
  tRAS: 9nCK
  tRC: 13nCK
  tRTP: 3nCK
  tWR: 4nCK
  tWTR: 3nCK
  tRTW: 6nCK
  tCCD: 2nCK
  tRRD: 2nCK
  tFAW: 12nCK
  tRFC: 20nCK
  tREFI: 50nCK
buses: {command: {scope: channel}}
commands:
  ACT: {bus: command}
  RD: {bus: command}
  RDA: {bus: command}
  WR: {bus: command}
  WRA: {bus: command}
  PRE: {bus: command}
  PREA: {bus: command}
  REFAB: {bus: command}
  REFPB: {bus: command}
data:
  read: {latency: RL, segments: [[0, nBL]]}
  write: {latency: WL, segments: [[0, nBL]]}
refresh: {all_bank: {}, per_bank: {sets: [[0, 4], [1, 5], [2, 6], [3, 7]]}}
constraints:
  - {scope: bank, after: ACT, before: [RD, RDA, WR, WRA], delay: tRCD}
  - {scope: bank, after: ACT, before: PRE, delay: tRAS}
  - {scope: bank, after: ACT, before: ACT, delay: tRC}
  - {scope: bank, after: PRE, before: [ACT, REFPB], delay: tRP}
  - {scope: bank, after: RD, before: PRE, delay: tRTP}
  - {scope: bank, after: WR, before: PRE, delay: WL + nBL + tWR}
  - {scope: bank, after: RDA, before: [ACT, REFPB], delay: tRTP + tRP}
  - {scope: bank, after: REFPB, before: [ACT, REFPB], delay: tRFC}
  - {scope: rank, after: [RD, RDA], before: [RD, RDA], delay: tCCD}
  - {scope: rank, after: [WR, WRA], before: [WR, WRA], delay: tCCD}
  - {scope: rank, after: [RD, RDA], before: [WR, WRA], delay: tRTW}
  - {scope: rank, after: [WR, WRA], before: [RD, RDA], delay: WL + nBL + tWTR}
  - {scope: rank, after: ACT, before: ACT, delay: tRRD}
  - {scope: rank, after: ACT, before: ACT, delay: tFAW, window: 4}
  - {scope: rank, after: ACT, before: PREA, delay: tRAS}
  - {scope: rank, after: RD, before: PREA, delay: tRTP}
  - {scope: rank, after: [PRE, PREA], before: REFAB, delay: tRP}
  - {scope: rank, after: REFAB, before: [ACT, REFAB], delay: tRFC}
energy:
  activate: 1pJ
  read_per_byte: 1pJ
  write_per_byte: 1pJ
  refresh_per_bank: 1pJ
  background: {precharged: 1mW, active: 1mW}
controller: {read_queue: 8, write_queue: 8, refresh: none}
address_map: [column, bank, bankgroup, row]
"""

TWO_STEP = {
    "commands": {
        name: {"bus": "command"}
        for name in ("ACT1", "ACT2", "RD", "RDA", "WR", "WRA", "PRE", "PREA", "REFAB", "REFPB")
    },
    "activate": {"steps": 2, "reference": "ACT1", "max_gap": 6, "second": "eager"},
}
SYNC = {"sync": {"hold": {"CAS": 10, "RD": 10, "WR": 10}}, "commands__CAS": {"bus": "command"}}


MASKED = {"commands__MWR": {"bus": "command"}, "commands__MWRA": {"bus": "command"}}
MASKED_APART = {
    "scope": "bank", "after": ["MWR", "MWRA"], "before": ["MWR", "MWRA"], "delay": 9,
}  # fmt: skip


def toy(*rows: dict[str, Any], **changes: Any) -> MemorySpec:
    """The toy memory with more rows and changes; `controller__refresh="none"` is the path
    controller.refresh."""
    document = loads(TOY, "toy")
    document.data["constraints"] += rows
    for path, value in changes.items():
        document.put(tuple(path.split("__")), value, Mark("test"))
    return document.build(MemorySpec)


def at(bank: int, row: int, column: int = 0) -> int:
    """Byte address in the toy memory."""
    return ((row * 8 + bank) * 8 + column) * 16


def read(bank: int, row: int, column: int = 0, arrival: int = 0) -> tuple[int, int, int]:
    return (arrival, at(bank, row, column), 0)


def write(bank: int, row: int, column: int = 0, arrival: int = 0) -> tuple[int, int, int]:
    return (arrival, at(bank, row, column), 1)


def partial(bank: int, row: int, column: int = 0, arrival: int = 0) -> tuple[int, int, int]:
    """A write of less than the burst."""
    return (arrival, at(bank, row, column), 2)


def story(result: ReferenceResult) -> str:
    """`0 ACT b0, 5 RD b0.c0, ...`"""
    parts = []
    for c in result.commands:
        bank = f" b{c.bankgroup * 2 + c.bank}" if c.bank >= 0 else ""
        parts.append(f"{c.tick} {c.command}{bank}" + (f".c{c.column}" if c.column >= 0 else ""))
    return ", ".join(parts)


def figures(result: ReferenceResult) -> tuple[int, int, int]:
    return result.row_hits, result.row_misses, result.row_conflicts
