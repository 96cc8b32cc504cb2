"""`bankwise fit states` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.sweeps.cli.test_command_line import bankwise

ASKED = ("fit", "states", "a100-80gb", "qwen3.5-35b-a3b", "--kv", "fp8", "--workload", "alpaca")


def test_requests_and_waste_by_allocator(tmp_path: Path) -> None:
    found = json.loads(bankwise(*ASKED, "--json", cwd=tmp_path).stdout)
    assert (found["block_tokens"], found["page_bytes"]) == (2096, 2_146_304)
    own = found["workloads"]["alpaca"]["allocators"]
    assert own["unified"]["bytes"]["end of the last block"] > own["two_pools"]["bytes"]["tokens"]
    assert 0 < own["two_pools"]["waste"] < 1
    shown = " ".join(bankwise(*ASKED, cwd=tmp_path).stdout.split())
    assert "blocks of 2,096 tokens" in shown and "even ratio" in shown


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("a100-80gb", "llama-3.1-8b"), "llama-3.1-8b has no layers with a state"),
        (("rtx-4090", "jamba-v0.1"), "jamba-v0.1 does not fit rtx-4090"),
        (("a100-80gb",), "missing argument 'MODEL'"),
        (("a100-80gb", "qwen3.5-9b", "--ratio", "0"), "--ratio: expected a number above 0"),
        (("a100-80gb", "qwen3.5-9b", "--workload", "alpac"), "alpac"),
        (("a100-80gb", "qwen3.5-9b", "--drafts", "17"), "--drafts: expected 16 at most; got '17'"),
    ],
)
def test_a_mistake_is_answered_in_a_line(asked: tuple[str, ...], said: str, tmp_path: Path) -> None:
    found = bankwise("fit", "states", *asked, cwd=tmp_path)
    assert found.returncode == 2
    assert said in found.stderr and "Traceback" not in found.stderr
