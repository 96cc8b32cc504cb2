"""Does a log give back the numbers it was made with, and say which it cannot?"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hwmodel.description.description import DescriptionError
from policies.serving.measured_server import MeasuredServer, Skipped, compare_server, load_server
from sweeps.ask.calibrate import Calibrated, calibrate, server_of, settings_of
from sweeps.ask.calibrated import CalibratedServer, overlay, sheet
from sweeps.sections.section import Say

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"
SHARED = ["serving.kv_tokens=30000", "given.weights=null", "given.attention=null"]


def made(
    folder: Path, *overrides: str, device: str = "rtx-4090", count: int = 60
) -> MeasuredServer:
    """A server, and the log of one in which the first of the overrides is another."""
    log = folder / "log.jsonl"
    random = np.random.default_rng(1)
    rows = [{"input_toks": int(prompt), "output_toks": int(output), "queued_ts": when,
             "first_token_ts": when, "last_token_ts": when}
            for prompt, output, when in zip(random.integers(50, 2000, count),
                                            random.integers(60, 200, count),
                                            np.cumsum(random.exponential(0.25, count)).tolist(),
                                            strict=True)]  # fmt: skip
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    served = server_of(log, device, "llama-3.1-8b", [*SHARED, *overrides]).serve({}).result
    for row, first, last in zip(rows, served.first_token_s, served.finish_s, strict=True):
        row |= {"first_token_ts": float(first) + rows[0]["queued_ts"],
                "last_token_ts": float(last) + rows[0]["queued_ts"]}  # fmt: skip
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return server_of(log, device, "llama-3.1-8b", [*SHARED, *overrides[1:]])


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Calibrated:
    return calibrate(made(tmp_path_factory.mktemp("log"), "given.efficiency=0.7"))


def test_a_log_gives_back_the_efficiency_of_memory(found: Calibrated) -> None:
    mean = found.fit.numbers["efficiency"]
    assert mean.mean == pytest.approx(0.7, rel=0.02) and mean.low <= 0.71 and mean.high >= 0.69
    assert found.settings()["given.efficiency"] == pytest.approx(mean.mean, rel=1e-3)
    latency = next(each for each in found.validated if each.what.startswith("TPOT"))
    assert abs(latency.after / latency.measured - 1) < 0.02 < latency.measured / latency.before - 1
    assert sum(found.windows) == 60


def test_a_number_that_moves_steps_alike_is_left_and_named(found: Calibrated) -> None:
    left = {each.name: each for each in found.fit.undetermined}
    assert left["overhead"].other == "efficiency"
    assert left["overhead"].instead is not None and left["overhead"].instead > 1000
    said = [block.text for block in sheet(found).blocks if isinstance(block, Say)]
    assert any("does not tell it from the efficiency of memory" in text for text in said)
    assert CalibratedServer(found).record()["undetermined"]


def test_the_overlay_is_a_server_that_validate_takes(found: Calibrated, tmp_path: Path) -> None:
    file = tmp_path / "calibrated.yaml"
    file.write_text(overlay(found))
    cells = {item.cell.figure: item for item in compare_server(load_server(str(file)))}
    assert abs(cells["tpot_mean"].error) < 0.02
    assert "# efficiency of memory: 0." in file.read_text()


@pytest.mark.long
def test_links_of_several_cards_are_told_from_their_memory(tmp_path: Path) -> None:
    slow = ("link.bandwidth=8GB/s", "serving.tensor_parallel=2", "link.all_reduce=null")
    found = calibrate(made(tmp_path, *slow, device="rtx-pro-6000")).fit.numbers
    assert list(found)[:2] == ["link", "efficiency"]
    assert found["link"].mean == pytest.approx(8.0, rel=0.02)


def test_what_is_described_by_size_goes_with_the_one_number(tmp_path: Path) -> None:
    made(tmp_path, "given.efficiency=0.7", count=12)
    server = server_of(tmp_path / "log.jsonl", "rtx-4090", "llama-3.1-8b", [])
    found = settings_of(server, {"efficiency": 0.425, "overhead": 700.0})
    assert found["given.weights"] == pytest.approx(0.43)
    assert found["given.attention"][0] == {"size": "8388608B", "share": 0.165}
    assert found["kernels.host"] == "700us"
    device, _ = server.case(found)
    assert device.given is not None and device.given.of_weights == pytest.approx(0.43)


def test_too_short_a_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DescriptionError, match="6 stretches of steps; expected 20 or more"):
        calibrate(made(tmp_path, "given.efficiency=0.7", count=12))


@pytest.mark.long
def test_a_measured_run_has_nearly_the_efficiency_of_its_kernels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BANKWISE_DATA", str(DATA))
    try:
        found = calibrate(load_server("vllm-0.19-rtx-4090-llama-3.1-8b"))
    except Skipped as error:
        pytest.skip(error.message)
    for each in found.validated:
        before, after = (abs(value / each.measured - 1) for value in (each.before, each.after))
        # the card is described with an efficiency of 0.85; this server's log puts it at 0.88
        assert before < 0.04 and after < 0.015
    assert list(found.fit.numbers) == ["efficiency"]
    efficiency = found.fit.numbers["efficiency"]
    assert efficiency.low < 1.03 * found.described["efficiency"] < efficiency.high
