"""Are other simulators given the same reads and requests, and timed without their start?"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tools.peers import speed
from tools.peers.serving_speed import Blis
from tools.peers.streams import IntArray

SIMULATOR = """#!{python}
import json, pathlib, sys
given = dict(zip(sys.argv[2::2], sys.argv[3::2]))
pathlib.Path(given["--metrics-path"]).write_text(json.dumps({{"tokens_per_sec": 3}}))
if "--trace-output" in given:
    pathlib.Path(given["--trace-output"] + ".csv").write_text(
        "request_id,input_tokens,output_tokens,arrival_time_us\\n0,185,952,125000\\n")
"""


class Linear(speed.PeerProgram):
    """A peer that takes a second to start and a millisecond a burst."""

    def device(self) -> speed.Device:
        return speed.load_device("ramulator-lpddr5-6400-x16")

    def run(self, address: IntArray, ns: float) -> speed.Found:
        return 1 + 0.001 * len(address), 2 * ns


def test_the_start_of_a_peer_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "LONG", 4000)
    monkeypatch.setattr(speed, "SHORT", 1000)
    found = speed.compared(Linear("peer", tmp_path), "in order", 1, lambda text: None)
    assert found["theirs"] == pytest.approx(1000)
    assert found["their memory time"] == pytest.approx(2)
    assert found["times as many"][0] == pytest.approx(found["here"] / 1000)


def test_without_peers_what_was_measured_is_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for variable, _ in speed.PAIRS.values():
        monkeypatch.delenv(variable, raising=False)
    before = speed.OUT.read_bytes()
    speed.main(1)
    assert speed.OUT.read_bytes() == before and "is kept" in capsys.readouterr().out


def test_requests_of_blis_are_read_as_it_drew_them(tmp_path: Path) -> None:
    program = tmp_path / "blis"
    program.write_text(SIMULATOR.format(python=sys.executable))
    program.chmod(0o755)
    blis = Blis(str(program), None, tmp_path)
    assert blis.run(10)[1] == {"tokens_per_sec": 3}
    requests = blis.requests(1).read_text().split()
    assert requests == ["arrival_s,prompt_tokens,output_tokens", "0.125,185,952"]
