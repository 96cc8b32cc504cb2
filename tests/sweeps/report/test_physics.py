"""Does the page of the KV-read sweeps say what the results say?"""

from __future__ import annotations

from pathlib import Path

import pytest

from hwmodel.description.description import DescriptionError
from sweeps.plan.sweep import load_sweep
from sweeps.report.physics import Cells, page
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
COSTS = "axes.device_set.dma.descriptor_cost=[0ns, 3us]"
ONE = ["axes.device_set.dma.window=[16KiB]", "axes.device_set.work.spread=[slice]"]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("physics") / "run"
    sweep = load_sweep("kv-dma", [text.removeprefix("base.") for text in [*SMALL, COSTS, *ONE]])
    run_sweep(sweep, out, False, 1, Progress(terminal=False))
    return out


def test_every_result_is_one_of_the_metrics(directory: Path) -> None:
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


def test_the_page_has_the_means_and_the_paired_gain(directory: Path) -> None:
    cells = Cells(directory)
    text = "\n".join(page([directory]))
    assert len(cells.rows) == 2
    for place in cells.rows:
        assert f"{cells.mean(place, 'paged').mean:,.1f}" in text
        gain = cells.gain(place)
        assert gain is not None and f"{1 + gain.mean:.3f}" in text
    # at 3 us a descriptor, a block of 16 tokens pays what few long runs do not
    slow = cells.gain(("slice", "16KiB", "3us"))
    assert slow is not None and slow.mean < -0.2
    assert f"- `kv-dma`: {1 + slow.mean:.2f} to " in text and "descriptor_cost 3us\n" in text


def test_equal_runs_are_set_against_blocks_and_against_staggered_ones(tmp_path: Path) -> None:
    small = ["batch.sequences=4", "batch.context=16", "batch.age=9", "model_set.max_position=64"]
    axes = ["axes.device=[mlu370-x4]", "axes.device_set.work.spread=[sequence]", "replications=2"]
    sweep = load_sweep(RESULTS / "kv-camping.yaml", [*small, *axes])
    assert not run_sweep(sweep, tmp_path / "run", False, 1, Progress(terminal=False)).failures
    cells = Cells(tmp_path / "run")
    text = "\n".join(page([tmp_path / "run"]))
    assert "of 3 conditions. Of each where they do" in text  # the fourth is no memory
    assert "On a memory that replaces rows at once" in text and "paged / static |" in text
    for place in cells.rows:
        gain = cells.gain(place)
        assert gain is not None and f"{1 + gain.mean:.3f}" in text
        assert cells.ratio(place, cells.policies()[-1], cells.contiguous) is not None


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DescriptionError, match="no such directory"):
        list(page([tmp_path / "nothing"]))


def test_a_batch_that_does_not_fit_is_the_inputs_fault(tmp_path: Path) -> None:
    sweep = load_sweep("kv-dma", ["batch.sequences=9000", "replications=1", COSTS, *ONE])
    run = run_sweep(sweep, tmp_path / "run", False, 1, Progress(terminal=False))
    assert run.at_fault and "9000 sequences of 2048 tokens do not fit" in run.failures[0]


def test_keys_of_serving_are_unknown_here() -> None:
    with pytest.raises(DescriptionError, match="unknown key"):
        load_sweep("kv-dma", ["serving.policy=paged"])
    assert load_sweep("kv-dma", ["policy=[paged, static]"]).spec.axes["batch.policy"]
