"""What does a device make of the blocks that a server gave its requests?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.sweeps.cli.test_command_line import bankwise

EXAMPLE = Path(__file__).resolve().parents[3] / "docs/block-tables.jsonl"
HEADER = {
    "format": "bankwise-block-tables", "block_size": 16, "blocks": 4000,
    "model": "deepseek-r1-distill-qwen-7b",
}  # fmt: skip


def write(folder: Path, header: dict[str, Any], *steps: dict[str, list[int]]) -> None:
    """Steps a second apart, each of full blocks by request."""
    lines = [header]
    for time_s, step in enumerate(steps):
        for name, blocks in step.items():
            tokens = 16 * len(blocks)
            lines.append({"time_s": time_s, "request": name, "blocks": blocks, "tokens": tokens})
    (folder / "log.jsonl").write_text("\n".join(map(json.dumps, lines)))


def steps(folder: Path, *arguments: str | Path) -> list[dict[str, Any]]:
    done = bankwise("replay", *arguments, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_each_step_is_told_then_the_sum(tmp_path: Path) -> None:
    *found, last = steps(tmp_path, "mlu370-x4", EXAMPLE, "--every", "3")
    assert [each["time_s"] for each in found] == [0.0, 2.88]
    assert found[0]["layer_bytes"] == 2804 * 2048  # 1 KiB of K and of V a token and layer
    assert found[0]["runs"] == found[0]["blocks"] == 176  # no two blocks lie together any more
    assert all(each["whole"] and each["row_hit_rate"] > 0.5 for each in found)
    total = last["total"]
    seconds = sum(each["layer_bytes"] / each["kv_gbps"] for each in found)
    assert total["kv_gbps"] == pytest.approx(sum(e["layer_bytes"] for e in found) / seconds)
    assert 0.7 < total["of_contiguous"] < 1.1
    assert total["steps"] == 2


def test_runs_of_blocks_are_read_as_what_they_are(tmp_path: Path) -> None:
    write(tmp_path, HEADER, {"a": list(range(512, 768)), "b": list(range(2048, 2304))})
    found, _ = steps(tmp_path, "mlu370-x4", "log.jsonl")
    assert (found["runs"], found["sequences"], found["tokens"]) == (2, 2, 8192)
    # K, then V, of each sequence's 4095 earlier tokens in one run
    assert found["extent_bytes"] == 4095 * 1024
    assert found["of_contiguous"] == pytest.approx(1, abs=0.05)


def test_a_table_for_the_reader(tmp_path: Path) -> None:
    text = bankwise("replay", "mlu370-x4", EXAMPLE, "--every", "6", cwd=tmp_path).stdout
    lead = " ".join(text.split("\n\n")[0].split())
    assert "KV of deepseek-r1-distill-qwen-7b on mlu370-x4, peak 307.2 GB/s" in lead
    assert text.splitlines()[-1].startswith("1 step: ")
