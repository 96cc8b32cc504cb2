"""`bankwise fit states` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

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
