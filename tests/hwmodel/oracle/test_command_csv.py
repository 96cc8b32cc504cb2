"""A command log's CSV comes back whole, and what is wrong with one is named by file and line."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from hwmodel.description.description import DescriptionError
from hwmodel.oracle.command_log import CommandLog, read_csv, write_csv
from hwmodel.specs.memory_spec import MemorySpec
from tests.hwmodel.memories import Case, cases, command_log, spec
from tests.hwmodel.oracle.reference import simulate
from tests.hwmodel.oracle.test_audit import parse

LPDDR5 = spec("lpddr5-6400-x16")
HBM2E = spec("hbm2e-3.2")
HALF_CLOCKS = spec("hbm2e-3.2", clock__ticks_per_ck=2)


def written(memory: MemorySpec, log: CommandLog, channel: int | None = None) -> str:
    file = io.StringIO()
    write_csv(file, memory, log, channel)
    return file.getvalue()


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=cases(40))
def test_csv_comes_back_whole(case: Case, tmp_path: Path) -> None:
    log = command_log(simulate(case.memory, case.requests).commands)
    file = tmp_path / "commands.csv"
    file.write_text(written(case.memory, log))
    ((channel, back),) = read_csv(case.memory, file)
    assert channel == 0
    for values, again in zip(log, back, strict=True):
        assert values.tolist() == again.tolist()


def test_csv_holds_channels_written_in_chunks(tmp_path: Path) -> None:
    log = command_log(parse(HBM2E, "0 ACT p1 b5 r9; 40 RD p1 b5 r9 c3; 99 REFAB"))
    file = tmp_path / "commands.csv"
    with file.open("w") as out:
        write_csv(out, HBM2E, log.take(np.arange(2)), 3)
        write_csv(out, HBM2E, log, 1, header=False)
        write_csv(out, HBM2E, log.take(np.array([2])), 3, header=False)
    assert file.read_text().splitlines()[:3] == [
        "channel,pseudochannel,cycle,command,rank,stack,bankgroup,bank,row,column",
        "3,1,0,ACT,0,0,1,1,9,",
        "3,1,40,RD,0,0,1,1,9,3",
    ]
    back = read_csv(HBM2E, file)
    assert [channel for channel, _ in back] == [1, 3]
    for _, again in back:
        assert [values.tolist() for values in again] == [values.tolist() for values in log]


def test_csv_counts_clocks_with_halves() -> None:
    text = written(HALF_CLOCKS, command_log(parse(HALF_CLOCKS, "0 ACT b0 r1; 41 RD b0 r1 c0")))
    assert [line.split(",")[1] for line in text.splitlines()] == ["cycle", "0", "20.5"]


HEADER = "cycle,command,rank,bankgroup,bank,row,column\n"


def test_unreadable_csv_is_the_users_mistake(tmp_path: Path) -> None:
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe")
    with pytest.raises(DescriptionError, match="not UTF-8"):
        read_csv(LPDDR5, tmp_path / "bytes.csv")


def test_csv_with_a_header_alone_holds_nothing(tmp_path: Path) -> None:
    file = tmp_path / "commands.csv"
    file.write_text(HEADER)
    assert read_csv(LPDDR5, file) == []
