"""Is a CSV trace with time, size and op read?"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hwmodel.measure.replay import replay
from hwmodel.specs.device import load_device

CARD = load_device("strix-halo")


def written(tmp_path: Path, name: str, text: str) -> Path:
    file = tmp_path / name
    file.write_text(text)
    return file


@pytest.mark.parametrize("header", ["time_ns,op,address,size", "size,address,op,time_ps"])
def test_csv_is_what_gem5_has(header: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    lines, other = [header], []
    for i in range(500):
        address, size = int(rng.integers(1 << 24)) // 64 * 64, int(rng.integers(1, 5)) * 64
        time, op = 4000 * i, "rw"[i % 4 == 0]
        value = {"time_ns": f"{time / 1000:g}", "time_ps": str(time), "op": op.upper(),
                 "address": hex(address), "size": str(size)}  # fmt: skip
        lines.append(",".join(value[name] for name in header.split(",")))
        other.append(f"{op},{address},{size},{time}")
    ours, theirs = (
        replay(CARD, written(tmp_path, name, "\n".join(text) + "\n"))
        for name, text in (("mine.csv", lines), ("gem5.txt", other))
    )
    left_out = ("pattern", "wall_s")
    assert {k: v for k, v in ours.items() if k not in left_out} == {
        k: v for k, v in theirs.items() if k not in left_out
    }
    assert ours["timed"]


def test_columns_without_time_and_size_are_bursts(tmp_path: Path) -> None:
    rows = "op,address\n" + "".join(f"read,{64 * i}\n" for i in range(100))
    plain = "".join(f"R {hex(64 * i)}\n" for i in range(100))
    found = [replay(CARD, written(tmp_path, *each)) for each in (("a.csv", rows), ("b", plain))]
    assert found[0]["cycles"] == found[1]["cycles"] and not found[0]["timed"]
