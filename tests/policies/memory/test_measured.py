"""Are the models where measurements say that they are, and are mistakes in these placed?"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hwmodel.description.description import DescriptionError
from hwmodel.description.library import names
from hwmodel.specs.device import Device, load_device
from hwmodel.specs.transformer import load_model
from policies.allocators.allocator import Limits
from policies.memory import measured, measured_steps
from policies.memory.measured import (
    Compared,
    Figure,
    MeasurementSpec,
    Tolerance,
    compare,
    load_measurements,
)
from policies.memory.measured_steps import (
    Decode,
    Rate,
    Runtime,
    decode_time,
    kv_rate,
    measured_rate,
)
from tests.rotation import long
from tools import kernel_rates

QUICK = ("bandwidth", "latency", "energy")
CARD = "llama-2-7b-a100-80gb"
FILE = """kind: measurement
name: mine
summary: x
sources: {s: somewhere}
device: hbm2-2.0
setups: {fast: {clock.tCK: 0.9ns}}
tolerances: {near: {within: 3%, reason: assumed}}
cells:
  - {what: a, bandwidth: {size: 1KiB}, measured: 14GB/s, tolerance: near, source: s, confidence: A}
"""


def only(spec: MeasurementSpec, *places: int) -> MeasurementSpec:
    """The measurements with these cells alone."""
    return spec.model_copy(update={"cells": [spec.cells[at] for at in places]})


@pytest.mark.parametrize("part", [0, *long(1, 2)])
@pytest.mark.parametrize("name", names("measurements"))
def test_no_agreement_is_lost(name: str, part: int) -> None:
    """Of the cells that take a second or less, all but step times: each third."""
    spec = load_measurements(name)
    quick = [i for i, cell in enumerate(spec.cells) if cell.agrees and cell.kind in QUICK][part::3]
    found = compare(only(spec, *quick))
    assert [f"{item.cell.what}: {item.error:+.1%}" for item in found if item.lost] == []


@pytest.mark.long
@pytest.mark.parametrize("name", names("measurements"))
def test_no_agreement_on_step_times_is_lost(name: str) -> None:
    spec = load_measurements(name)
    inputs = {runtime.rate_from for runtime in spec.runtimes.values()}
    kept = [
        i
        for i, cell in enumerate(spec.cells)
        if cell.what in inputs or (cell.agrees and cell.kind not in QUICK)
    ]
    found = compare(only(spec, *kept))
    assert [f"{item.cell.what}: {item.error:+.1%}" for item in found if item.lost] == []


def test_an_input_gives_the_rate_of_the_weights_and_of_what_loses_with_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(measured_steps, "_weights", lambda *_: 0.9)
    monkeypatch.setattr(measured_steps, "_attention", lambda *_: 0.8)
    device, model = load_device("dgx-spark-gb10"), load_model("deepseek-r1-distill-qwen-7b")
    short = Decode(batch=1, context=512, weights="q8_0", kv="fp16")
    rate = measured_rate(device, model, short, Runtime(), 34.2)
    assert rate.kv == 1
    assert decode_time(device, model, short, Runtime(), rate).ms == pytest.approx(34.2)
    # 7.07e9 weights of 8.5 bits and vectors, 513 tokens of 56 KiB of which 512 are read at 80 %
    # and all else: overheads of 335 us and 28 x 12 us
    kv_ms = 513 * 57344 / (273.0667e6 * 0.8)
    weights_ms = 34.2 - 0.335 - 28 * 0.012 - kv_ms
    moved = model.stored_as("q8_0", None).step_weight_bytes
    assert 0.9 * rate.weights == pytest.approx(moved / 273.0667e6 / weights_ms, rel=1e-4)
    peak_ms = decode_time(device, model, short, Runtime(), rate).peak_ms
    assert peak_ms == pytest.approx((moved + 513 * 57344) / 273.0667e6, rel=1e-4)
    lossy = measured_rate(device, model, short, Runtime(loss="memory", rate_from="short"), 34.2)
    assert lossy == Rate(rate.weights, rate.weights)
    # the slope over context is the rate of KV alone
    both = Decode(batch=16, context=8192, since=512, weights="q8_0", kv="fp16")
    slope = kv_rate(device, model, both, Runtime(), lossy)
    assert slope == pytest.approx(273.0667 * 0.8 * rate.weights, rel=1e-4)
    with pytest.raises(ValueError, match="ms of it are not the weights'"):
        measured_rate(device, model, short, Runtime(), 0.5)


def test_a_program_reads_weights_at_its_own_rate_and_takes_a_fixed_time_a_layer() -> None:
    card, model = load_device("rtx-4090"), load_model("llama-2-7b")
    assert card.accelerator is not None and card.given is not None
    compute, given = card.accelerator.compute, card.given
    step = Decode(batch=1, context=64)
    ideal, found = (
        decode_time(card, model, step, runtime, Rate()).ms
        for runtime in (Runtime(), Runtime(weights=given.of_weights / 2, layer_overhead="59us"))
    )
    weights_ms = model.step_weight_bytes / (card.peak_gbps * given.of_weights * 1e6)
    fixed_ms = model.layers * (59_000.0 - compute.layer_overhead) / 1e6
    assert found - ideal == pytest.approx(weights_ms + fixed_ms, rel=0.01)


def test_a_fixed_time_of_a_layer_is_what_the_step_that_it_is_from_leaves() -> None:
    step = Decode(batch=1, context=64, weights="q4_0", kv="fp16")  # tg 128 from an empty context
    described = load_measurements("llama-3-8b-decode").runtimes["RTX 4090 F16"]
    runtime = described.model_copy(update={"kv": None})
    found = decode_time(load_device("rtx-4090"), load_model("llama-2-7b"), step, runtime, Rate())
    assert found.ms == pytest.approx(1e3 / 146.81, rel=0.005)


@pytest.mark.parametrize(
    ("runtime", "machine", "form"),
    [
        ("RTX 4090 4 bits", "RTX 4090", "q4_0"),
        ("L40S 4 bits", "RTX 6000 Ada", "q4_0"),
        ("RTX 6000 Ada F16", "RTX 6000 Ada", "fp16"),
        *(
            pytest.param(runtime, machine, form, marks=pytest.mark.long)
            for runtime, machine, form in (
                ("A100 F16", "A100 80GB", "fp16"),
                ("A100 4 bits", "A100 80GB", "q4_0"),
                ("H100 F16", "H100 PCIe", "fp16"),
                ("H100 4 bits", "H100 PCIe", "q4_0"),
                ("M1 Max 4 bits", "M1 Max, 24 cores", "q4_0"),
                ("M2 Ultra F16", "M2 Ultra, 76 cores", "fp16"),
                ("M2 Ultra 4 bits", "M2 Ultra, 76 cores", "q4_0"),
            )
        ),
    ],
)
def test_rates_and_fixed_times_are_those_fitted_to_other_runs(
    runtime: str, machine: str, form: str
) -> None:
    name, settings = kernel_rates.MACHINES[machine]
    runs = kernel_rates.TOKENS_PER_S[machine, form]
    share, layer_us, error = kernel_rates.fitted(load_device(name, settings), form, runs)
    found = load_measurements("llama-3-8b-decode").runtimes[runtime]
    assert found.weights == pytest.approx(share, abs=0.0006)
    assert found.layer_overhead == pytest.approx(1e3 * layer_us, abs=600)
    assert error < 0.06


def test_products_that_wait_for_flops_and_a_rate_of_the_kv() -> None:
    """As Qwen3-4B's step, 64.3 GFLOP in 30 ms, of 258 TFLOPS."""
    thor, model = load_device("jetson-agx-thor"), load_model("llama-3.1-8b")
    step = Decode(batch=8, context=447, weights="w4a16", kv="fp16")
    found, slower_kv = (
        decode_time(thor, model, step, Runtime(weights=0.7, kv=kv, products=0.0083), Rate()).ms
        for kv in (0.5, 0.25)
    )
    products_ms = 8 * (model.layer_flops + model.head_flops) / (0.0083 * 258e9)
    kv_ms = 8 * 448 * 131072 / (0.5 * thor.peak_gbps * 1e6)
    compute = thor.accelerator.compute  # type: ignore[union-attr]
    fixed_ms = (compute.step_overhead + 32 * compute.layer_overhead) / 1e6
    assert found == pytest.approx(products_ms + kv_ms + fixed_ms, rel=0.005)
    assert slower_kv - found == pytest.approx(kv_ms, rel=0.005)


def test_verdicts_by_hand() -> None:
    cell = load_measurements(CARD).cells[0]
    measured = cell.measured.value

    def verdict(error: float, stands: str = "measured", agrees: bool = False) -> tuple[str, bool]:
        changed = cell.model_copy(update={"stands": stands, "agrees": agrees})
        item = Compared(changed, measured * (1 + error), measured * 0.1)
        return item.verdict, item.lost

    assert verdict(0.09) == verdict(-0.09, agrees=True) == ("within", False)
    assert verdict(0.11) == ("refuted", False)
    assert verdict(-0.11, agrees=True) == ("refuted", True)
    # a lower limit of a rate is an upper limit of a time
    assert verdict(-0.5, "lower_limit") == verdict(0.09, "lower_limit") == ("lower limit", False)
    assert verdict(0.11, "lower_limit") == ("refuted", False)
    assert verdict(0.5, "input") == ("input", False)


def test_shares_of_the_peaks_by_hand() -> None:
    decode, prefill = compare(only(load_measurements(CARD), 3, 11))
    # the weights without the embedding table and 1153 tokens of 512 KiB in 10.1 ms, of 2039 GB/s
    moved = 13_214_687_232 + 1153 * (512 << 10)
    assert decode.share == pytest.approx(moved / 10.1e-3 / 2039e9, rel=1e-3)
    # 2 FLOPs a weight of the matrices and a token, 4 x 32 x 4096 for each token attended to
    layers = 32 * (4 * 4096**2 + 3 * 4096 * 11008)
    flops = 2 * layers * 2048 + 2 * 4096 * 32000 + 2048 * 2049 // 2 * 4 * 32 * 4096
    assert prefill.share == pytest.approx(flops / 133e-3 / 312e12, rel=1e-6)


def test_step_times_are_within_what_is_documented() -> None:
    # decode at batch 1 takes three quarters of the measured time with kernels that read as fast as
    # DRAM gives, and what was measured with those of a profile; prefill_efficiency is the mean of
    # what was measured with 2,048 tokens
    spec = load_measurements(CARD)
    decode, prefill = compare(only(spec, 0, 11))
    ideal = compare(only(spec.model_copy(update={"runtimes": {"one card": Runtime()}}), 0))[0]
    assert -0.3 < ideal.error < -0.15
    assert -0.05 < decode.error < 0.05
    assert -0.05 < prefill.error < 0.1


def test_is_each_figure_in_the_unit_that_it_was_measured_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def simulated(device: Device, pattern: Any) -> dict[str, float]:
        peak = device.peak_gbps
        return {"bandwidth_gbps": peak / 4, "energy_nj": 16.0, "bytes": 500.0}

    monkeypatch.setattr(measured, "bandwidth", simulated)
    monkeypatch.setattr(measured, "channel_latency", lambda device, row: 40.0)
    first, *_ = FILE.partition("cells:")
    rest = "tolerance: near, source: s, confidence: A}\n"
    file = tmp_path / "mine.yaml"
    file.write_text(
        first.replace("sources:", "requester: 5ns\nsources:")
        + "cells:\n"
        + "".join(
            f"  - {{what: a, {cell}, {rest}"
            for cell in (
                "bandwidth: {size: 1KiB}, measured: 10GB/s",
                "bandwidth: {size: 1KiB}, measured: 20%",
                "bandwidth: {size: 1KiB}, measured: 2x, over: fast",
                "energy: {size: 1KiB}, measured: 3pJ/bit",
                "latency: {row: hit}, measured: 50ns",
            )
        )
    )
    found = compare(load_measurements(str(file)))
    peak = load_device("hbm2-2.0").peak_gbps
    fast = load_device("hbm2-2.0", ["clock.tCK=0.9ns"]).peak_gbps
    assert [each.model for each in found] == pytest.approx([peak / 4, 25, peak / fast, 4.0, 45.0])
    assert [each.tolerance for each in found] == pytest.approx([0.3, 0.6, 0.06, 0.09, 1.5])
    assert [each.error for each in found[1:]] == pytest.approx(
        [0.25, peak / fast / 2 - 1, 1 / 3, -0.1]
    )
    assert {each.derate for each in found} == {1.0}


def test_how_is_a_figure_written() -> None:
    figures = [(14.0, "GB/s"), (2.5, "x"), (12.345, "%"), (1234.5, "tokens/s"), (999.96, "ms")]
    assert [str(Figure(*each)) for each in figures] == [
        "14 GB/s", "2.5x", "12.35%", "1,234 tokens/s", "1000 ms"
    ]  # fmt: skip
    share, absolute = (Tolerance(within=within, reason="") for within in ("3%", "2ns"))
    measured = Figure(50.0, "ns")
    assert (share.around(measured), absolute.around(measured)) == (1.5, 2.0)


@pytest.mark.parametrize(("pad", "longest"), [(None, 1200), (256, 768), (601, 601), (600, 1200)])
def test_how_long_can_sequences_of_a_measured_step_become(
    pad: int | None, longest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed: list[Any] = []

    def place(allocator: Any, batch: Any, rng: Any) -> Any:
        placed.append(allocator.limits)
        return batch_placed(allocator, batch, rng)

    batch_placed = measured_steps.place
    monkeypatch.setattr(measured_steps, "place", place)
    monkeypatch.setattr(
        measured_steps, "simulate_once", lambda device, stream: SimpleNamespace(gbps=100.0)
    )
    card, model = load_device("a100-80gb"), load_model("llama-2-7b")
    step = Decode(batch=2, context=600)
    share = measured_steps._attention(card, model, step, Runtime(pad=pad, age=0))
    assert placed == [Limits(600, longest)]
    assert share == pytest.approx(100 / card.peak_gbps * card.derate)


def test_a_set_up_may_be_another_device_and_what_reaches_its_engines_counts(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        FILE.replace("clock.tCK: 0.9ns", "device: jetson-agx-orin").replace(
            "source: s,", "source: s, setup: fast,"
        )
    )
    (found,) = compare(load_measurements(str(file)))
    assert found.derate == 0.9
    assert 0.8 * 204.8 < found.model < 0.9 * 204.8


@pytest.mark.parametrize(
    ("old", "new", "answer"),
    [
        (
            "source: s",
            "source: so",
            r"mine.yaml:9: cells\[0\].source: no source 'so'; did you mean",
        ),
        ("tolerance: near", "tolerance: far", r"cells\[0\].tolerance: no tolerance 'far'"),
        ("14GB/s", "14ns", r"mine.yaml:9: cells\[0\]: measured: a bandwidth is in GB/s"),
        ("14GB/s", "14", r"cells\[0\].measured: expected a number with its unit"),
        ("{size: 1KiB}", "{size: 1KiB, mix: two}", r"bandwidth.mix: expected reads and writes"),
        ("{size: 1KiB}", "{size: 1KiB, stride: 1KiB, random: true}", "stride: random extents"),
        ("bandwidth: {size: 1KiB}", "latency: {window: 1GiB}", "expected|latency is in ns"),
        ("bandwidth: {size: 1KiB}", "decode: {batch: 0, context: 1}", r"cells\[0\].decode.batch"),
        ("clock.tCK: 0.9ns", "clock.tck: 0.9ns", r"mine.yaml:6: setups.fast: hbm2-2.0: .*tCK"),
        ("clock.tCK: 0.9ns", "device: nothing", r"mine.yaml:6: setups.fast: nothing: no shipped"),
        ("14GB/s", "14x", "over: stands with a figure in x"),
        ("{size: 1KiB}", "{size: 1KiB}, runtime: it", "runtime: stands with decode"),
        (
            "bandwidth: {size: 1KiB}",
            "decode: {batch: 1, context: 9}",
            "decode.since: stands with a figure in GB/s",
        ),
        (
            "bandwidth: {size: 1KiB}",
            "decode: {batch: 1, context: 9, since: 9}",
            "decode: since: expected a shorter context",
        ),
        (
            "tolerances:",
            "runtimes: {it: {rate_from: b}}\ntolerances:",
            "runtimes.it.rate_from: no rate_from 'b'",
        ),
        (
            "tolerances:",
            "runtimes: {it: {weights: 0.5, source: so}}\ntolerances:",
            "runtimes.it.source: no source 'so'; did you mean 's'",
        ),
        ("tolerances:", "runtimes: {it: {weights: 1.5}}\ntolerances:", "runtimes.it.weights"),
        (
            "tolerances:",
            "runtimes: {it: {weights: 0.5, rate_from: b}}\ntolerances:",
            "runtimes.it: weights: not with rate_from",
        ),
        (
            "tolerances:",
            "runtimes: {it: {loss: memory}}\ntolerances:",
            "runtimes.it: loss: only with rate_from",
        ),
        (
            "tolerances:",
            "runtimes: {it: {layer_overhead: 9}}\ntolerances:",
            "runtimes.it.layer_overhead: expected a time with its unit",
        ),
    ],
)
def test_mistakes_are_placed(tmp_path: Path, old: str, new: str, answer: str) -> None:
    file = tmp_path / "mine.yaml"
    assert old in FILE
    file.write_text(FILE.replace(old, new))
    with pytest.raises(DescriptionError, match=answer):
        load_measurements(str(file))


def test_an_unknown_name_is_answered() -> None:
    with pytest.raises(DescriptionError, match="no shipped measurement 'nothing'"):
        load_measurements("nothing")
