"""Is a measured server held against its own requests and settings, and are mistakes placed?"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hwmodel.description.library import names
from policies.requests.request_log import read_request_log
from policies.serving.measured_server import MeasuredServer, Skipped, compare_server, load_server
from policies.serving.server_timeseries import read_timeseries, running_and_waiting
from tests.rotation import long

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"
FILE = """kind: server
name: mine
summary: a server of mine
device: rtx-4090
serving:
  model: llama-3.1-8b
  kv_tokens: 4096
  engine: {name: v1, max_num_seqs: 8}
log: requests.jsonl
timeseries: series.csv
"""


def write(folder: Path, text: str = FILE) -> Path:
    file = folder / "mine.yaml"
    file.write_text(text)
    return file


def log_of(folder: Path, server: MeasuredServer | None = None) -> None:
    """A log of 40 requests; with the times of the simulation of `server`, where it is given."""
    queued = 1000 + np.arange(40) * 0.05
    first, last = queued + 1.0, queued + 9.0
    if server is not None:
        result = server.serve({}).result
        first, last = result.first_token_s + 1000, result.finish_s + 1000
    rows = [
        {"request_id": f"r{i}", "input_toks": 300 + i, "output_toks": 20 + i,
         "queued_ts": queued[i], "first_token_ts": first[i], "last_token_ts": last[i]}
        for i in range(40)
    ]  # fmt: skip
    (folder / "requests.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_ten_lines_compare_a_log_and_a_simulation_with_itself_agrees(tmp_path: Path) -> None:
    log_of(tmp_path)
    server = load_server(str(write(tmp_path)))
    log_of(tmp_path, server)
    found = compare_server(server)
    assert [item.cell.what for item in found[:2]] == ["ttft_mean", "ttft_p50"]
    assert max(abs(item.error) for item in found) < 1e-6
    assert {item.verdict for item in found} == {"within"}
    changed = compare_server(server, overrides=["given.bandwidth=504GB/s"])
    assert all(item.error > 0.3 for item in changed if item.cell.figure.startswith("tpot"))


def test_figures_of_a_log_by_hand(tmp_path: Path) -> None:
    log_of(tmp_path)
    figures = read_request_log(tmp_path / "requests.jsonl").figures()
    assert figures["ttft_s"]["mean"] == pytest.approx(1.0)
    assert figures["latency_s"]["mean"] == pytest.approx(9.0)
    assert figures["tpot_s"]["mean"] == pytest.approx(np.mean(8 / (np.arange(40) + 19)))


def test_running_and_waiting_add_up(tmp_path: Path) -> None:
    log_of(tmp_path)
    (tmp_path / "series.csv").write_text("t,other,running,waiting\n1.0,5,8,4\n2.0,5,8,2\n")
    server = load_server(str(write(tmp_path)))
    assert read_timeseries(server)["waiting"].tolist() == [4, 2]
    model = running_and_waiting(server)
    assert model["running"].max() <= 8 and model["waiting"].max() > 10


def test_an_absent_log_is_skipped_with_its_line(tmp_path: Path) -> None:
    server = load_server(str(write(tmp_path)))
    with pytest.raises(Skipped, match=r"mine\.yaml:9: log: .*BANKWISE_DATA"):
        compare_server(server)


WATERMARK = "vllm-gb200-watermark"


@pytest.mark.parametrize("name", [*sorted({*names("servers")} - {WATERMARK}), *long(WATERMARK)])
def test_no_agreement_is_lost(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BANKWISE_DATA", str(DATA))
    try:
        found = compare_server(load_server(name))
    except Skipped as error:
        pytest.skip(error.message)
    assert [f"{item.cell.what}: {item.error:+.1%}" for item in found if item.lost] == []


def test_published_means_are_those_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BANKWISE_DATA", str(DATA))
    server = load_server("vllm-0.19-rtx-4090-llama-3.1-8b")
    try:
        times = server.times()
    except Skipped as error:
        pytest.skip(error.message)
    assert times is not None
    figures = times.figures()
    assert figures["ttft_s"]["mean"] == pytest.approx(65.4566, abs=1e-3)
    assert figures["tpot_s"]["mean"] == pytest.approx(32.4e-3, abs=5e-5)
    assert figures["latency_s"]["p99"] == pytest.approx(153.63, abs=0.3)
