"""Do other simulators read exported steps as we do? The long tests run where peers are built
(docs/trust.md) and are skipped elsewhere."""

from __future__ import annotations

from configparser import ConfigParser
from pathlib import Path

import pytest

from tools.peers import peers


def peer(name: str) -> peers.Peer:
    """A peer that is built here; else the test is skipped."""
    found = {each.name: each for each in peers.built()}
    if name not in found:
        pytest.skip(f"{peers.VARIABLES[name]} is not set: no {name} here")
    return found[name]


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "place", "traffic", "within"),
    [
        ("Ramulator", "LPDDR5", "decode", 0.003),
        ("Ramulator", "LPDDR5", "prefill", 0.01),
        ("Ramulator", "HBM2", "decode", 0.003),
        ("Ramulator", "HBM2", "prefill", 0.01),
        ("DRAMsim3", "HBM2", "decode", 0.005),
        ("DRAMsim3", "HBM2", "prefill", 0.005),
    ],
)
def test_a_peer_needs_as_many_cycles_and_has_as_many_row_hits(
    name: str, place: str, traffic: str, within: float, tmp_path: Path
) -> None:
    for row in peers.rows(peer(name), place, traffic, tmp_path, ["odma"], 1):
        assert row.bursts > 100_000 and (row.writes > row.bursts / 4) == (traffic == "prefill")
        assert row.theirs.cycles == pytest.approx(row.ours.cycles, rel=within)
        assert row.theirs.hits == pytest.approx(row.ours.hits, rel=0.006)


@pytest.mark.long
def test_addresses_by_another_map_cost_odma_its_advantage(tmp_path: Path) -> None:
    ramulator = peer("Ramulator")
    found = list(peers.rows(ramulator, "LPDDR5", "decode", tmp_path, ["paged", "odma"], 1))
    change = {
        which: peers.bandwidth(ramulator, "LPDDR5", found, which)["odma over paged"]
        for which in ("ours", "theirs", "unmapped")
    }
    assert change["theirs"] == pytest.approx(change["ours"], abs=0.003)
    assert change["theirs"] > 1.005 > change["unmapped"]


def test_dramsim3_is_described_from_our_memory() -> None:
    dramsim3 = peers.DRAMsim3("dramsim3main")
    memory, text = dramsim3.device("HBM2").memory, ConfigParser()
    text.optionxform = str  # type: ignore[assignment, method-assign]
    text.read_string(dramsim3.description("HBM2", refresh=True))
    shape, timing, system = (text[name] for name in ("dram_structure", "timing", "system"))
    row_bytes = int(shape["columns"]) * 2 * int(shape["device_width"]) // 8
    banks = int(shape["bankgroups"]) * int(shape["banks_per_group"])
    assert row_bytes * banks * int(shape["rows"]) == memory.organisation.capacity_bytes
    assert int(system["cmd_queue_size"]) == memory.controller.read_queue
    read_to_write = int(timing["CL"]) + 2 + int(timing["tRTRS"]) - int(timing["CWL"])
    assert read_to_write == memory.clocks("tRTW")
    assert int(timing["tRAS"]) + int(timing["tRP"]) == memory.clocks("tRC")


def test_without_a_peer_one_line_says_what_to_set(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("BANKWISE_DRAMSIM3", raising=False)
    assert peers.main() == 2
    assert capsys.readouterr().err == (
        "set BANKWISE_RAMULATOR and BANKWISE_DRAMSIM3; see docs/performance.md\n"
    )
