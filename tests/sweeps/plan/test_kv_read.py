"""Does a sweep of KV reads give what its batch and its memory make of it?"""

from __future__ import annotations

from pathlib import Path

import pytest

from hwmodel.description.description import DescriptionError
from sweeps.plan.sweep import load_sweep
from sweeps.report.contents import read_report
from sweeps.run.progress import Progress
from sweeps.run.store import RunDirectory
from sweeps.run.sweep_run import run_sweep
from tests.sweeps.made import RESULTS

SMALL = [
    "step=true",
    "base.batch.sequences=32",
    "base.batch.context=256",
    "base.batch.age=90",
    "replications=2",
]
DMA = RESULTS / "kv-dma.yaml"
COSTS = "axes.device_set.dma.descriptor_cost=[0ns, 3us]"
ONE = ["axes.device_set.dma.window=[16KiB]", "axes.device_set.work.spread=[slice]"]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("physics") / "run"
    sweep = load_sweep(
        RESULTS / "kv-dma.yaml", [text.removeprefix("base.") for text in [*SMALL, COSTS, *ONE]]
    )
    run_sweep(sweep, out, False, 1, Progress(terminal=False))
    return out


def test_every_result_has_what_its_bytes_come_to(directory: Path) -> None:
    records = RunDirectory(directory).records()
    assert len(records) == 2 * 2 * 2
    for record in records:
        metrics = record["metrics"]
        # K and V of 256 tokens read and of one written, 1 KiB each, by 32 sequences
        assert metrics["layer_bytes"] == 32 * 2 * 257 * 1024
        assert metrics["kv_gbps"] == pytest.approx(
            metrics["layer_bytes"] / metrics["layer_us"] / 1e3
        )
        assert metrics["efficiency"] == pytest.approx(metrics["kv_gbps"] / 307.2)
        limit = metrics["kv_share"] * (1 / metrics["efficiency"] - 1)
        assert metrics["layout_limit"] == pytest.approx(limit)


def test_slow_descriptors_cost_blocks_what_few_long_runs_do_not_pay(directory: Path) -> None:
    (slow,) = [g for g in read_report(directory).table.groups if "3us" in g.title]
    rates = {row.name: row.mean("kv_gbps") or 0.0 for row in slow.main()}
    assert rates["paged"] < 0.8 * rates["oracle"]


def test_a_batch_that_does_not_fit_is_the_inputs_fault(tmp_path: Path) -> None:
    sweep = load_sweep(
        RESULTS / "kv-dma.yaml", ["batch.sequences=9000", "replications=1", COSTS, *ONE]
    )
    with pytest.raises(DescriptionError, match="9000 sequences of 2048 tokens do not fit"):
        run_sweep(sweep, tmp_path / "run", False, 1, Progress(terminal=False))


def test_keys_of_serving_are_unknown_here() -> None:
    with pytest.raises(DescriptionError, match="unknown key"):
        load_sweep(DMA, ["serving.policy=paged"])
    assert load_sweep(DMA, ["policy=[paged, static]"]).spec.axes["batch.policy"]
