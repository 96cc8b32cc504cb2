"""Are steps as long as public ones, with the device as shipped?"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.description.library import names
from hwmodel.description.yaml_reader import load, loads
from hwmodel.specs.device import load_device
from hwmodel.specs.kernel_law import KernelClass, KernelLaw
from hwmodel.specs.transformer import load_model
from policies.engines.scheduled_step import Chunk, Step
from policies.memory.products import Products, expert_padding
from policies.memory.step import StepModel
from policies.memory.step_times import Efficiency
from sweeps.ask.fit import Fit, FitQuestion, fit
from tests.policies.memory.test_step import decode
from tests.rotation import long


@pytest.mark.parametrize("name", names("kernels"))
def test_a_class_says_of_each_program_all_that_a_law_has(name: str) -> None:
    document = load_class(name)
    stated = set(document.law).union(*document.programs.values())
    assert stated == set(KernelLaw.model_fields)


@pytest.mark.parametrize("device", ["m2-ultra", "rtx-4090", *long("dgx-spark-gb10", "strix-halo")])
def test_no_class_of_kernels_is_faster_than_the_bound(device: str) -> None:
    model = load_model("qwen2.5-7b")

    def rates(of: str, program: str) -> list[float]:
        card = load_device(device, [f"kernels={{class: {of}, program: {program}}}"])
        found = fit(card, model, FitQuestion())
        assert isinstance(found, Fit)
        return [each.tokens_per_s for each in (found.alone, found.full, found.prefill)]

    ideal = rates("ideal", "any")
    for name in names("kernels"):
        for program in load_class(name).programs:
            assert all(a <= b for a, b in zip(rates(name, program), ideal, strict=True)), name


def load_class(name: str) -> KernelClass:
    from hwmodel.description.library import find

    return load(find("kernels", name)).build(KernelClass)


def test_mistakes_in_a_class_are_placed() -> None:
    text = load_text()
    for old, new, answer in (
        ("usual: any", "usual: nay", "usual: did you mean 'any'"),
        ("host: 0us}", "hots: 0us}", "programs.any.hots: unknown key; did you mean 'host'"),
        ("tile: 1", "tile: 0", "law.tile: "),
    ):
        with pytest.raises(DescriptionError, match=answer):
            loads(text.replace(old, new), "mine.yaml").build(KernelClass)


def load_text() -> str:
    from hwmodel.description.library import find

    return find("kernels", "ideal").read_text()


def test_what_a_device_says_stands_over_its_class_with_its_source() -> None:
    device = load_device("a100-80gb")
    assert device.accelerator is not None
    assert device.accelerator.kernels.weights == 0.8
    assert load_device("h100-sxm").accelerator.kernels.weights == 0.89  # type: ignore[union-attr]
    assert "kernels.host" in device.assumed and "kernels.product" not in device.assumed


def test_rows_are_padded_to_tiles_and_few_rows_read_the_weights_again() -> None:
    model = load_model("llama-2-7b")
    law = "kernels={class: ideal, tile: 32, vector_rows: 8, vector_columns: 4}"
    bound = ["compute.fp16=1GFLOPS", "compute.decode_efficiency=1.0", "compute.overlap=max", law]
    slow = StepModel(load_device("a100-80gb", bound), model)
    times = [slow.times(decode(n, n), 1, Efficiency()).weights_s for n in (9, 32, 33, 64)]
    assert times[0] == pytest.approx(times[1]) and times[2] == pytest.approx(times[3])
    assert times[2] == pytest.approx(2 * times[1])
    fast = StepModel(load_device("a100-80gb", [law]), model)
    times = [fast.times(decode(n, n), 1, Efficiency()).weights_s for n in (1, 4, 5, 8, 9)]
    assert times[0] == times[1] == times[4] and times[2] == times[3] == pytest.approx(2 * times[0])


def test_experts_wait_for_their_own_bytes_or_flops() -> None:
    """A prompt of 64 tokens reads all experts of qwen3-30b-a3b, but its other products compute
    longer than they read: neither hides the other."""
    model = load_model("qwen3-30b-a3b")
    step = Step(np.zeros(0, np.int64), 0, [Chunk(0, 0, 64, True)], [], 0, "offered_load")
    law = "kernels={class: ideal, experts_efficiency: %s}"
    slow = ["compute.bf16=50TFLOPS", "compute.overlap=max"]
    whole, half = (
        StepModel(load_device("a100-80gb", [*slow, law % share]), model) for share in (1, 0.5)
    )
    work = whole.work.of(step, 1)
    dense, experts = Products(load_device("a100-80gb", [*slow, law % 1]), model).seconds(
        work, work.phases["weights"], 1.0
    )
    assert dense.flops_s > dense.read_s and experts.read_s > experts.flops_s
    times = whole.times(step, 1, Efficiency())
    assert times.weights_s + times.prefill_s > dense.flops_s + experts.read_s
    assert half.times(step, 1, Efficiency()).total_s[0] == times.total_s[0]  # still read
    longer = step._replace(chunks=[Chunk(0, 0, 4096, True)])
    assert (
        half.times(longer, 1, Efficiency()).total_s[0]
        > 1.4 * whole.times(longer, 1, Efficiency()).total_s[0]
    )


@pytest.mark.parametrize(
    ("tile", "rows", "times"),
    [
        (64, 4.0, 4.0),  # a tile of 16 with 4 rows
        (64, 8.0, 2.0), (64, 8.5, 32 / 8.5),  # 17 rows ask for a tile of 32
        (64, 33.0, 1 + 64 / 66),  # no tile is higher than `tile`
        (16, 100.0, 1 + 16 / 200),  # half a tile is empty on average
        (1, 3.0, 1.0),
    ],
)  # fmt: skip
def test_rows_of_an_expert_are_padded_to_its_tile(tile: int, rows: float, times: float) -> None:
    card = load_device("a100-80gb", [f"kernels={{class: ideal, tile: {tile}}}"])
    assert card.accelerator is not None
    assert expert_padding(card.accelerator.kernels, rows) == pytest.approx(times)


@pytest.mark.parametrize(("rows", "each"), [(1, 1.0), (2, 1.9), (31, 4.0), (32, 4.0)])
def test_a_row_reads_its_experts_by_itself_where_the_law_says_so(rows: int, each: float) -> None:
    """Metal's from 2 to below 32 rows: each expert as often as it has rows, at 0.7 of the rate."""
    model = load_model("gpt-oss-20b").stored_as("mxfp4_experts_gguf", "fp16")
    flops = {"decode": 1.0}
    work = SimpleNamespace(rows=rows, expert_rows=each, expert_bytes=1e12, phases={},
                           expert_flops=flops)  # fmt: skip
    linear: Any = SimpleNamespace(flops={"decode": 2.0}, waits=2e12)
    apart, shared = (
        Products(load_device("m2-ultra", settings), model).seconds(work, linear, 1.0)[1].read_s  # type: ignore[arg-type]
        for settings in ([], ["kernels.lone_expert_rows=0"])
    )
    passes = -(-rows // 4) if rows <= 8 else 1  # of a matrix and vectors
    alone = 1 < rows < 32
    assert apart / shared == pytest.approx(each / 0.7 / passes if alone else 1.0)
