"""Are traces of agents read as sessions whose turns wait for tools, and what do bad ones answer?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hwmodel.description.description import DescriptionError
from policies.requests.request_stream import generate
from policies.requests.requests import Requests, load_trace
from policies.requests.workload import WorkloadSpec, workload_document
from tests.policies.small import run

GROWING = [(100, 20, 2e9), (150, 10, 5e8), (200, 30, 0)]
REWRITTEN = [(100, 20, 1e9), (110, 20, 1e9), (60, 5, 0)]


def session(begin: float, turns: list[tuple[int, int, float]]) -> dict[str, Any]:
    keys = ("input_toks", "output_toks", "tool_duration_ns")
    each = [dict(zip(keys, turn, strict=True)) for turn in turns]
    return {"session_id": "s", "arrival_time_ns": begin, "sub_requests": each}


def written(folder: Path, *lines: dict[str, Any] | str, name: str = "agents.jsonl") -> Path:
    file = folder / name
    file.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n"
                            for line in lines))  # fmt: skip
    return file


def requests(file: Path, count: int, rate: float | None = None, **changes: Any) -> Requests:
    data = {**workload_document(str(file)).data, **changes}
    return generate(WorkloadSpec.model_validate(data), count, rate)


def test_each_turn_is_sent_when_its_tool_has_run(tmp_path: Path) -> None:
    flat = {"input_toks": 7, "output_toks": 3, "arrival_time_ns": 4e9}
    found = requests(written(tmp_path, session(1e9, GROWING), flat), 4)
    assert found.arrival_s.tolist() == [0, 2, 2.5, 3]  # as if answers took no time
    assert found.prompt_tokens.tolist() == [100, 150, 200, 7]
    assert found.think_s == pytest.approx([np.nan, 2, 0.5, np.nan], nan_ok=True)
    assert found.session.tolist() == found.context.tolist() == [0, 0, 0, 1]


def test_of_a_rewritten_prompt_the_shorter_one_is_shared(tmp_path: Path) -> None:
    found = requests(written(tmp_path, session(0, GROWING), session(9e9, REWRITTEN)), 6)
    assert found.context.tolist() == [0, 0, 0, -1, -1, -1]
    assert found.session.tolist() == [0, 0, 0, 1, 1, 1]
    assert [found.prefixes(row) for row in (2, 3, 4, 5)] == [
        (), ((0, 100),), ((0, 100), (1, 110)), ((0, 60), (1, 60), (2, 60)),
    ]  # fmt: skip


def test_the_rate_moves_beginnings_and_no_pause(tmp_path: Path) -> None:
    file = written(tmp_path, session(0, GROWING), session(6e9, GROWING))
    slow, fast = requests(file, 6), requests(file, 6, 2.0)
    assert slow.arrival_s.max() == 8.5 and fast.arrival_s[fast.session == 1].min() < 6
    assert np.nansum(slow.think_s) == np.nansum(fast.think_s) == 5


def test_repeating_begins_new_sessions(tmp_path: Path) -> None:
    file = written(tmp_path, session(0, GROWING), session(6e9, GROWING))
    lengths = {"trace": str(file), "repeat": True}
    found = requests(file, 12, lengths=lengths)
    assert np.unique(found.session).tolist() == [0, 1, 2, 3]
    assert sorted(found.arrival_s[np.isnan(found.think_s)]) == [0, 6, 12, 18]


def test_an_empty_answer_is_left_out_and_its_tool_still_runs(tmp_path: Path) -> None:
    file = written(tmp_path, session(0, [(10, 5, 1e9), (20, 0, 2e9), (30, 5, 0)]))
    assert load_trace(file).dropped == 1
    assert requests(file, 2).think_s[1] == 3


@pytest.mark.parametrize(("turns", "cached"), [(GROWING, 112 + 144), (REWRITTEN, 96 + 48)])
def test_turns_find_what_they_share(tmp_path: Path, turns: Any, cached: int) -> None:
    """In blocks of 16: of what grows 119 and 159 tokens are stored; of rewritten prompts 100 and
    60 are alike, the last of which is computed."""
    stream = requests(written(tmp_path, session(0, turns)), 3)
    metrics = run(4096, stream).metrics
    total = sum(turn[0] for turn in turns)
    assert metrics["cached_share"] == pytest.approx(cached / total)


def test_sessions_are_not_cut(tmp_path: Path) -> None:
    file = written(tmp_path, session(0, GROWING))
    with pytest.raises(DescriptionError, match="limits: does not go with a trace of sessions"):
        requests(file, 3, limits={"max_prompt_tokens": 50})
