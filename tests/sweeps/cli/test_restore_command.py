"""`bankwise transfer restore` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.sweeps.cli.test_command_line import bankwise, refusal

SHARED = ("transfer", "restore", "--model", "llama-2-7b", "--device", "a100-80gb")
ASKED = (*SHARED, "nvme-pcie4")


def test_ways_by_context(tmp_path: Path) -> None:
    found = json.loads(bankwise(*ASKED, "--json", cwd=tmp_path).stdout)
    assert [each["tokens"] for each in found["contexts"]] == [1024, 4096]  # as far as they fit
    ways = found["contexts"][1]["ways"]
    assert list(ways) == ["recompute", "fetch KV", "fetch KV, whole blocks", "HCache"]
    assert found["contexts"][1]["fastest"] == min(ways, key=lambda name: ways[name]["ms"])
    assert found["hidden_over_kv_bytes"] == 0.5
    shown = bankwise(*ASKED, cwd=tmp_path).stdout
    assert "states have 0.5 of KV's bytes" in shown and "HCache *" in shown


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--tokens", "1k"), "--tokens: expected a whole number; got '1k'"),
        (("--tokens", "9999"), "9,999 tokens are more than the 4,096 of llama-2-7b"),
        (("--block", "0"), "--block: expected 1 or more; got '0'"),
        (("--pages", "old"), "expected fresh, aged, descending"),
    ],
)
def test_a_mistake_is_answered_in_a_line(
    options: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    assert said in refusal(*ASKED, *options, cwd=tmp_path)


def test_a_link_and_a_device_are_needed(tmp_path: Path) -> None:
    text = refusal(*SHARED, "nvme", cwd=tmp_path)
    assert text == "no shipped link 'nvme'; did you mean 'nvme-4x'?"
    text = refusal("transfer", "restore", "nvme-4x", "--model", "llama-2-7b", cwd=tmp_path)
    assert "missing option '--device'" in text
