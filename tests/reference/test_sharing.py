"""Are prompt tokens that an earlier request had counted once, and sessions told apart?"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from policies.requests.requests import Requests
from tools.peers import sharing


def test_a_turn_finds_the_turn_before_and_a_first_turn_an_opening_that_was_seen() -> None:
    requests = Requests(
        np.arange(4.0), [100, 90, 160, 70], [50, 5, 5, 5],
        prefix_id=[1, 1, 1, 0], prefix_tokens=[60, 60, 60, 20],
        think_s=[np.nan, np.nan, 1.0, np.nan], session=[0, 1, 0, 2],
        tree=np.array([[-1, 0], [0, 20]]),
    )  # fmt: skip
    assert sharing.shared_tokens(requests) == 60 + 150 + 20


def test_a_request_that_shares_the_systems_block_alone_begins_a_session(tmp_path: Path) -> None:
    rows = [([0, 1, 2], 1300), ([0, 3], 700), ([0, 1, 2, 4], 2000)]
    trace = tmp_path / "trace.jsonl"
    lines = [json.dumps({"hash_ids": ids, "input_length": tokens}) for ids, tokens in rows]
    trace.write_text("\n".join(lines), encoding="utf-8")
    row = sharing.traced(trace)
    assert row["turns a session"] == 1.5
    assert row["prompt tokens found"] == round((512 + 3 * 512) / 4000, 6)
