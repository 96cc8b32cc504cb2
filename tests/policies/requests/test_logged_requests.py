"""Are logs of servers and of their benchmarks read alike, and are they workloads?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from policies.requests.request_log import read_request_log
from policies.requests.request_stream import generate
from policies.requests.workload import WorkloadSpec, workload_document

BENCH: dict[str, Any] = {  # as vLLM's benchmarks/serve.py names them
    "backend": "vllm", "request_rate": 2.0, "max_concurrency": None, "completed": 2,
    "input_lens": [300, 20, 100], "output_lens": [3, 0, 2], "ttfts": [0.5, 0.0, 0.25],
    "itls": [[0.1, 0.2], [], [0.05]], "start_times": [101.0, 101.5, 100.0],
    "generated_texts": ["", "", ""], "errors": ["", "refused", ""],
}  # fmt: skip


def write(folder: Path, data: Any, name: str = "bench.json") -> Path:
    file = folder / name
    file.write_text(data if isinstance(data, str) else json.dumps(data))
    return file


def test_a_benchmark_has_the_times_of_its_requests(tmp_path: Path) -> None:
    found = read_request_log(write(tmp_path, BENCH))
    assert found.prompt_tokens.tolist() == [100, 300]
    assert found.output_tokens.tolist() == [2, 3]
    assert found.queued_s.tolist() == [0.0, 1.0]
    assert found.first_s.tolist() == [0.25, 1.5]
    assert found.last_s == pytest.approx([0.3, 1.8])


def test_the_last_line_of_sglang_counts_and_requests_at_once_need_no_times(tmp_path: Path) -> None:
    last = {key: value for key, value in BENCH.items() if key != "start_times"}
    lines = [json.dumps(each) for each in (BENCH, last | {"request_rate": "inf"})]
    found = read_request_log(write(tmp_path, "\n".join(lines) + "\n", "bench.jsonl"))
    assert found.queued_s.tolist() == [0.0, 0.0]


def test_a_log_is_a_workload(tmp_path: Path) -> None:
    spec = workload_document(str(write(tmp_path, BENCH))).build(WorkloadSpec)
    found = generate(spec, 2, None, (1, 1))
    assert found.arrival_s.tolist() == [0.0, 1.0]
    assert found.prompt_tokens.tolist() == [100, 300]
    row = {"input_toks": 5, "output_toks": 2, "queued_ts": 7.5, "first_token_ts": 8.0,
           "last_token_ts": 8.1}  # fmt: skip
    log = write(tmp_path, json.dumps(row) + "\n" + json.dumps(row | {"queued_ts": 7.75}), "l.jsonl")
    spec = workload_document(str(log)).build(WorkloadSpec)
    assert generate(spec, 2, None, (1, 1)).arrival_s.tolist() == [0.0, 0.25]
